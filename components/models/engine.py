"""What do all models behind an HTTP endpoint share? Their config, and one session with which they ask.

`openai_model` and `chat_model` hold an `Engine` each. It knows nothing of what is asked.
"""

import asyncio
from collections.abc import Callable
from typing import Annotated, Self, TypeVar

import aiohttp
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    SecretStr,
    model_validator,
)
from yarl import URL

from components.models.base import ModelCall, ModelConfig
from components.models.endpoints import Endpoints
from components.models.errors import ModelError
from components.models.request import Limits, open_session, request
from components.models.sampling import Sampling

T = TypeVar("T")

_OWN_SHARE = 0.95
"""Of a call's deadline: the engine's error, which says what happened, comes before the worker's, which cannot."""
_UNKNOWN_KEY = "401"
"""403 is no obstacle: a key may be good for inference alone."""


def _base_url(value: str) -> str:
    url = URL(value)
    if url.scheme not in {"http", "https"} or not url.host:
        shown = repr(value) if value.isprintable() and not {"@", "?", "#"} & set(value) else "this"
        raise ValueError(f"{shown} is no base URL; it should look like http://127.0.0.1:8000/v1")
    if "?" in value or "#" in value:
        raise ValueError("a base URL has no `?…` and no `#…`; a key goes into api_key, or into headers")
    for path in ("/chat/completions", "/responses"):
        if url.path.rstrip("/").endswith(path):
            raise ValueError(f"a base URL ends before {path}, which is added to it")
    return value.rstrip("/")


BaseUrls = Annotated[
    tuple[Annotated[str, AfterValidator(_base_url)], ...],
    BeforeValidator(lambda value: [value] if isinstance(value, str) else value),
    Field(min_length=1),
]
"""One URL or a list of them."""


class HttpConfig(BaseModel):
    """How patiently an engine is asked. Seconds."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    connect_timeout_s: float = Field(default=10.0, gt=0)
    read_timeout_s: float | None = Field(default=None, gt=0)
    """Without a byte from the engine; null: up to the call's deadline, since an engine that does not stream is silent
    until it is done."""
    tries: int = Field(default=10, ge=1)
    """After connection errors, 408, 409, 429 and 5xx. Another 4xx is never tried again."""
    first_wait_s: float = Field(default=0.5, ge=0)
    """Before the second try; it doubles from try to try, jittered."""
    longest_wait_s: float = Field(default=30.0, ge=0)
    ready_timeout_s: float = Field(default=10.0, ge=0)
    """How long a worker waits at its start for the engine to answer; raise it where engines start along with it."""


class EngineConfig(ModelConfig):
    """The config of a model behind an HTTP endpoint."""

    base_url: BaseUrls
    """Up to and without `/responses` or `/chat/completions`. Of several, a rollout keeps to one while it lives."""
    model: str | None = None
    """The model's name at the endpoint; null: what the request says."""
    api_key: SecretStr | None = None
    """Sent as a bearer token. Its value belongs into `env.yaml`: `api_key: ${openai_api_key}`."""
    headers: dict[str, SecretStr] = Field(default_factory=dict)
    """Further headers; their values are treated as secrets."""
    defaults: Sampling = Sampling()
    """For what a request leaves open."""
    overrides: Sampling = Sampling()
    """Applied last: also where a request says otherwise."""
    extra_body: dict[str, JsonValue] = Field(default_factory=dict)
    """Further fields of the body, as the engine names them (`top_k`, `chat_template_kwargs`, …); they win over those
    that are made from the request."""
    http: HttpConfig = HttpConfig()

    @model_validator(mode="after")
    def _one_authorization(self) -> Self:
        """HTTP has one header for both kinds of it."""
        given = "api_key" if self.api_key is not None else None
        given = next((f"headers.{name}" for name in self.headers if name.lower() == "authorization"), given)
        if given is not None and any("@" in URL(url).raw_authority for url in self.base_url):
            raise ValueError(f"a base_url with a user and {given} exclude each other: leave one of them out")
        return self


class Engine:
    """The connection of one model component to its engine."""

    def __init__(self, config: EngineConfig) -> None:
        self._config = config
        self._endpoints = Endpoints(config.base_url)
        self._headers = {name: value.get_secret_value() for name, value in config.headers.items()}
        self._secrets = [value for value in self._headers.values() if value]
        if config.api_key is not None and (key := config.api_key.get_secret_value()):
            self._headers["Authorization"] = f"Bearer {key}"
            self._secrets.insert(0, key)
        self._session: aiohttp.ClientSession | None = None

    async def start(self) -> None:
        """Opens the session and asks each base URL for its models: any answer but a refused key will do.

        Raises `ModelError` if a URL does not answer within `ready_timeout_s`, or refuses the key.
        """
        self._session = open_session()
        patience = max(self._config.http.ready_timeout_s, 0.1)
        limits = Limits(total_s=patience, connect_s=patience, tries=1_000, first_wait_s=0.1, longest_wait_s=2.0)
        for url in self._config.base_url:
            try:
                await self._request("GET", "/models", bytes, endpoints=Endpoints((url,)), limits=limits)
            except ModelError as error:
                if error.details.get("status", _UNKNOWN_KEY) == _UNKNOWN_KEY:
                    raise

    async def stop(self) -> None:
        """Closes the session."""
        if self._session is not None:
            await self._session.close()

    async def get(self, path: str, parse: Callable[[bytes], T]) -> T:
        """What the engine says of itself. Raises `ModelError`."""
        limits = Limits(total_s=self._config.deadline_s * _OWN_SHARE, connect_s=self._config.http.connect_timeout_s)
        return await self._request("GET", path, parse, endpoints=self._endpoints, limits=limits)

    async def post(self, path: str, body: bytes, parse: Callable[[bytes], T], call: ModelCall) -> T:
        """The engine's answer to `body`, as `parse` reads it. Raises `ModelError`."""
        http = self._config.http
        limits = Limits(
            total_s=self._config.deadline_s * _OWN_SHARE,
            connect_s=http.connect_timeout_s,
            read_s=http.read_timeout_s,
            tries=http.tries,
            first_wait_s=http.first_wait_s,
            longest_wait_s=http.longest_wait_s,
        )
        return await self._request("POST", path, parse, endpoints=self._endpoints, limits=limits, body=body, call=call)

    async def _request(
        self,
        method: str,
        path: str,
        parse: Callable[[bytes], T],
        *,
        endpoints: Endpoints,
        limits: Limits,
        body: bytes | None = None,
        call: ModelCall | None = None,
    ) -> T:
        assert self._session is not None, "start() comes first"
        return await request(
            self._session,
            method,
            endpoints,
            path,
            parse=parse,
            body=body,
            headers={**self._headers, "Content-Type": "application/json"} if body else self._headers,
            limits=limits,
            affinity=call.rollout_id if call else "",
            sleep=call.wait if call else asyncio.sleep,
            secrets=self._secrets,
        )

"""What does a failed attempt to reach an engine mean: is it worth another try, when, and which error is it in the end?

Used by `request`; does no I/O. Nothing that it returns holds a secret or the credentials of a URL.
"""

import asyncio
import json
import os
import re
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Final

import aiohttp
from pydantic import ValidationError
from yarl import URL

from components.models.errors import ModelError
from contracts.events import ErrorKind
from contracts.problems import problems

SHOWN: Final = 300
"""Characters of an engine's answer that an error quotes."""

_WORTH_ANOTHER_TRY: Final = frozenset({408, 409, 429})

_CONTEXT: Final = re.compile(
    r"context.?length|maximum context|context.?(size|window)|exceed_context_size|maximum (model|sequence) length"
    r"|(prompt|input) is too long|input token count .* exceeds"
    r"|max_(completion_|output_)?tokens\W.*(too large|must be at least 1, got -)",
    re.IGNORECASE | re.DOTALL,
)
"""How engines say that a request does not fit the model."""

_TOO_DEEP: Final = "it is nested too deeply"

_NEXT_STEP: Final = {
    401: "check api_key",
    403: "check api_key and what it is allowed to use",
    404: "check base_url and model",
    405: "check base_url",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """One attempt that gave no answer."""

    kind: ErrorKind
    message: str
    """What happened, without the URL."""
    retry: bool
    unreachable: bool = False
    """The engine was not there: another URL may be asked at once."""
    wait_s: float | None = None
    """How long the engine asks to be left alone."""
    status: int | None = None
    next_step: str = ""

    def error(self, *, request: str, tries: int, seconds: float) -> ModelError:
        """The failure as the call's error; `request` names method and URL, without credentials."""
        gave_up = f"; gave up after {tries} tries in {seconds:.1f} s" if tries > 1 else ""
        next_step = f". Next: {self.next_step}" if self.next_step else ""
        details = {"request": request, "tries": str(tries)}
        if self.status is not None:
            details["status"] = str(self.status)
        return ModelError(self.kind, f"{request}: {self.message}{gave_up}{next_step}", details=details)


def of_exception(error: Exception) -> Failure:
    """What an exception of aiohttp means for the attempt that raised it."""
    what = str(error) or type(error).__name__
    if isinstance(error, (aiohttp.ClientConnectorCertificateError, ssl.SSLCertVerificationError)):
        return Failure(
            kind="unavailable", message=what, retry=False, next_step="check the certificate, or use its host name"
        )
    if isinstance(error, aiohttp.InvalidURL):
        return Failure(kind="bad_request", message="no valid URL", retry=False, next_step="check base_url")
    if isinstance(error, aiohttp.ConnectionTimeoutError):
        return Failure(
            kind="unavailable", message="no connection within the connect time", retry=True, unreachable=True
        )
    if isinstance(error, (aiohttp.ServerTimeoutError, asyncio.TimeoutError)):
        return Failure(kind="deadline", message="connected, but no answer came in time", retry=True, unreachable=True)
    if isinstance(error, aiohttp.ClientConnectorError):
        return Failure(
            kind="unavailable",
            message=_connection_error(error),
            retry=True,
            unreachable=True,
            next_step="check that the engine runs and that base_url is right",
        )
    return Failure(kind="unavailable", message=f"the connection broke: {what}", retry=True, unreachable=True)


def of_status(status: int, headers: Mapping[str, str], body: bytes, secrets: Sequence[str]) -> Failure:
    """What an answer other than 2xx means."""
    said = excerpt(body, secrets)
    message = f"answered {status}" + (f": {said}" if said else "")
    if _CONTEXT.search(said) and status not in _WORTH_ANOTHER_TRY:
        return Failure(kind="context_length", message=message, retry=False, status=status)
    if status in _WORTH_ANOTHER_TRY or status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        wait_s = retry_after(headers.get("Retry-After"))
        return Failure(kind="unavailable", message=message, retry=True, wait_s=wait_s, status=status)
    if HTTPStatus.MULTIPLE_CHOICES <= status < HTTPStatus.BAD_REQUEST:
        target = without_credentials(headers.get("Location", "another URL"))
        return Failure(
            kind="bad_request",
            message=f"answered {status}, a redirect to {target}",
            retry=False,
            status=status,
            next_step="set base_url to where the engine is",
        )
    return Failure(
        kind="bad_request", message=message, retry=False, status=status, next_step=_NEXT_STEP.get(status, "")
    )


def of_content(
    status: int, content_type: str, body: bytes, error: ValueError | RecursionError, secrets: Sequence[str]
) -> Failure:
    """A 2xx answer that is not what was asked for; `error` says why."""
    why = excerpt(_why(error, body).encode(), secrets)
    said = excerpt(body, secrets) or "an empty body"
    return Failure(
        kind="unavailable",
        message=f"answered {status} with {content_type or 'no content type'} that cannot be read ({why}): {said}",
        retry=False,
        status=status,
        next_step="check that base_url leads to an engine of this kind",
    )


def retry_after(value: str | None) -> float | None:
    """Seconds that a `Retry-After` header asks for, given in seconds or as an HTTP date; None if it says nothing."""
    if value is None:
        return None
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        when = parsedate_to_datetime(value)
    except ValueError:
        return None
    return max(0.0, (when.replace(tzinfo=when.tzinfo or UTC) - datetime.now(UTC)).total_seconds())


def excerpt(body: bytes, secrets: Sequence[str]) -> str:
    """The start of a body for a human: the engine's own message where it has one, secrets taken out."""
    text = " ".join((_message_in(body) or body[: 8 * SHOWN].decode(errors="replace")).split())
    for secret in secrets:
        text = text.replace(secret, "***")
    return text if len(text) <= SHOWN else text[:SHOWN] + "…"


def without_credentials(url: str) -> str:
    """`url` without user, password, query and fragment."""
    try:
        parsed = URL(url)
        return (
            str(parsed.with_user(None).with_query(None).with_fragment(None)) if parsed.host else url.partition("?")[0]
        )
    except ValueError:
        return "an invalid URL"


def _message_in(body: bytes) -> str:
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        return ""
    error = document.get("error", document) if isinstance(document, dict) else None
    if isinstance(error, dict) and isinstance(error.get("message"), str):
        labels = [str(error[name]) for name in ("type", "code") if error.get(name) and name in error]
        return " ".join((error["message"], *(f"({label})" for label in labels if label not in error["message"])))
    return ""


def _why(error: ValueError | RecursionError, body: bytes) -> str:
    if isinstance(error, RecursionError):
        return _TOO_DEEP
    if not isinstance(error, ValidationError):
        return str(error)
    try:
        places = problems(error, json.loads(body))
    except RecursionError:
        return _TOO_DEEP
    except ValueError:
        return "it is not JSON"
    return "; ".join(": ".join(filter(None, place)) for place in places[:2])


def _connection_error(error: aiohttp.ClientConnectorError) -> str:
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return f"the host name {error.host!r} cannot be resolved"
    code = error.os_error.errno
    return f"no connection ({os.strerror(code) if code else error.os_error})"

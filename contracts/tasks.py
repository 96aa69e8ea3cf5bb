"""The task: one line of a dataset, `responses_create_params` plus the environment's own fields. No I/O.

`Task` keeps the line's bytes and decodes what it is asked for, each time anew: a line crosses several workers, and most
of them only pass it on.
"""

from typing import Any

import msgspec

from contracts.errors import InvalidTask
from contracts.responses import ResponseCreateParams


class _Params(msgspec.Struct):
    responses_create_params: msgspec.Raw


_PARAMS = msgspec.json.Decoder(_Params)


class Task:
    """One task, as the agent's `run` receives it. Small: each rollout that waits has one."""

    __slots__ = ("raw",)

    def __init__(self, raw: bytes | msgspec.Raw) -> None:
        self.raw = raw if isinstance(raw, msgspec.Raw) else msgspec.Raw(raw)

    @property
    def responses_create_params(self) -> ResponseCreateParams:
        """The request that the agent starts from; raises `InvalidTask` if the line holds none."""
        try:
            params = _PARAMS.decode(self.raw).responses_create_params
        except msgspec.DecodeError as error:
            raise InvalidTask(str(error), field="responses_create_params") from error
        return ResponseCreateParams.model_validate_json(bytes(params))

    @property
    def fields(self) -> dict[str, Any]:
        """The whole line, decoded."""
        fields: dict[str, Any] = msgspec.json.decode(self.raw, type=dict[str, Any])
        return fields

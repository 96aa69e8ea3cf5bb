"""How are tokens sampled where the config, and not the request, says so? No I/O."""

from pydantic import BaseModel, ConfigDict, Field

from contracts.responses import ResponseCreateParams

__all__ = ["Sampling", "sampled"]


class Sampling(BaseModel):
    """Sampling options of a request. What is null is left as it is."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    temperature: float | None = Field(default=None, ge=0)
    top_p: float | None = Field(default=None, gt=0, le=1)
    max_output_tokens: int | None = Field(default=None, ge=1)


def sampled(request: ResponseCreateParams, defaults: Sampling, overrides: Sampling) -> ResponseCreateParams:
    """`request` with `defaults` for what it leaves open, and `overrides` in place of what it says."""
    update = {name: value for name, value in _given(defaults).items() if getattr(request, name) is None}
    update.update(_given(overrides))
    return request.model_copy(update=update) if update else request


def _given(sampling: Sampling) -> dict[str, float | int]:
    return sampling.model_dump(exclude_none=True)

"""How do rollouts become lines of events from which nothing is lost?

Called by `replay export --format events`. The form is that of `file_source`. What the deployment said of itself stands
first, so that the file is verified without the run's config. One event and what it refers to is in memory at a time.
"""

from collections.abc import AsyncIterator, Iterable
from typing import Final

from contracts.events import Recorded
from replay.file_source import blob_line
from replay.source import Source

_RUN: Final = "deployment.run"


async def event_lines(source: Source, rollouts: Iterable[str], runs: frozenset[str]) -> AsyncIterator[bytes]:
    """The lines, without newlines, of these rollouts and of the deployment; `runs` are those that they belong to.

    Raises `NoSource` where a blob is missing.
    """
    lines = Lines(source)
    for recorded in await source.deployment():
        if recorded.event.type == _RUN and recorded.subject.rpartition(".")[2] not in runs:
            continue
        async for line in lines.of(recorded):
            yield line
    for rollout in rollouts:
        async for recorded in source.stream(rollout):
            async for line in lines.of(recorded):
                yield line


class Lines:
    """Writes events; each blob stands once, before the first event that refers to it."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._written: set[str] = set()

    async def of(self, recorded: Recorded) -> AsyncIterator[bytes]:
        """The lines of one event."""
        for reference in (recorded.event.dataref, recorded.event.captureref):
            if reference and reference not in self._written:
                self._written.add(reference)
                yield blob_line(reference, await self._source.fetch_blob(reference))
        yield recorded.raw.replace(b"\n", b" ")  # between the tokens of JSON, where alone one can stand

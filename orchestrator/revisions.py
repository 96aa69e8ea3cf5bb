"""What do verifiers say now of rollouts that were scored again?

`replay reverify` appends revisions; called by whoever writes result files from the log, in which the latest one counts.
It appends none.
"""

from typing import Final

import msgspec

from bus import Bus
from contracts.rollouts import Revised
from orchestrator.results import Outcome

_REVISED: Final = msgspec.json.Decoder(Revised)
_FIELDS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])


async def latest_revisions(bus: Bus, partition: int, run_id: str) -> dict[str, tuple[int, Revised]]:
    """By rollout of a run, the number of its latest revision and what it says. Raises `BusError`."""
    found: dict[str, tuple[int, Revised]] = {}
    async for recorded in bus.scan(bus.subjects.revised_of(partition, run_id), partition=partition):
        number = int(recorded.subject.rpartition(".")[2])
        rollout = recorded.event.rolloutid
        if number > found.get(rollout, (0, None))[0]:
            found[rollout] = number, _REVISED.decode(await bus.fetch_data(recorded.event))
    return found


def revise(outcome: Outcome, number: int, revised: Revised) -> Outcome:
    """The outcome with the reward of a revision; its line says which, and what the reward was at first."""
    if outcome.reward is None:
        return outcome
    line: dict[str, object] = {**_FIELDS.decode(outcome.line), **revised.extra}
    line |= {"reward": revised.reward, "first_reward": outcome.reward, "reward_revision": number}
    return msgspec.structs.replace(outcome, reward=revised.reward, line=msgspec.json.encode(line))

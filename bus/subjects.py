"""Where each event lives: the grammar of subjects, and the names of streams and consumers.

Called wherever an event is addressed or read. One event has one subject, and each form has the rollout ID at a fixed
place, so that a handful of filters finds a whole trajectory. Does no I/O. Names are checked where they enter the
process (`contracts.ids`); here and in `check_subject` only what would make one land elsewhere is refused again.

    <ns>.<p>.<kind>.<instance>.<slot>.request.<rollout>.<key>     a call
    <ns>.<p>.<kind>.<instance>._.request.<rollout>.<key>          one that was made and answered in another rollout
    <ns>.<p>.reply.<worker>.<rollout>.<key>                       its answer
    <ns>.<p>.rollout.ended.<run>.<rollout>                        the one terminal event
    <ns>.<p>.rollout.adopted.<run>.<rollout>.<epoch>
    <ns>.<p>.rollout.revised.<run>.<rollout>.<n>
    <ns>.<p>.cancel.<run>.<rollout or _>                          this rollout, or the whole run, is to end
    <ns>.<p>.dead.<kind>.<instance>.<rollout or _>.<id>           a dead letter
    <ns>.<p>.dead.<kind>.<instance>.<rollout or _>.<id>.settled   what an operator decided about it
    <ns>.0.policy.<model instance>.<version>
    <ns>.0.feed.<run>.<feed>.<n>                                  what a trainer has taken of a run, numbered from 0
    <ns>.0.deployment.<what>.<id>
    <ns>.blob.<sha256>.<layout>.<number>                          a piece of data that is too large for an event
    <ns>.blob.<sha256>.<layout>.<number>.<sha256>                 one before which that other blob stands
"""

import re
from dataclasses import dataclass
from typing import Final, Literal, get_args

from contracts.errors import InvalidName
from contracts.events import Event, Kind
from contracts.ids import check_name, partition_of, rollout_id, slot_of

Deployment = Literal["resolved", "run", "worker", "stopping", "crashed", "trying"]
"""What a deployment records about itself."""

NO_ROLLOUT: Final = "_"
"""Stands for the rollout in the subject of a dead letter that belongs to none, and of a whole run's cancellation."""

COPIED: Final = "_"
"""Stands for the slot where a call is not to be served: it is in a fork's history with its reply."""

_KINDS: Final = frozenset(get_args(Kind))
_LITERAL: Final = re.compile(r"[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*")


def check_subject(subject: str) -> bytes:
    """The subject's bytes; raises `InvalidName` if it could be anything but one literal subject of ours."""
    if _LITERAL.fullmatch(subject) is None:
        raise InvalidName(f"subject {subject[:80]!r} may only hold tokens of A-Z a-z 0-9 _ - joined by dots")
    return subject.encode()


@dataclass(frozen=True, slots=True)
class Subjects:
    """The subjects of one deployment."""

    namespace: str
    partitions: int

    def __post_init__(self) -> None:
        check_name(self.namespace, "namespace")

    def partition(self, rollout: str) -> int:
        """The partition that holds this rollout."""
        return partition_of(rollout, self.partitions)

    def stream(self, partition: int) -> str:
        """The stream of a partition."""
        return f"{self.namespace}_{partition}"

    @property
    def blob_stream(self) -> str:
        """The stream of what is too large for an event."""
        return f"{self.namespace}_blobs"

    def stream_of(self, subject: str) -> str:
        """The stream that holds `subject`, which begins with this namespace and a partition or `blob`."""
        token = subject[len(self.namespace) + 1 :].partition(".")[0]
        return self.blob_stream if token == "blob" else f"{self.namespace}_{token}"  # noqa: S105

    def request(self, kind: Kind, instance: str, slots: int, rollout: str, key: str) -> str:
        """A call to an instance that has `slots` slots."""
        slot = slot_of(rollout, slots)
        return _of(8, f"{self.namespace}.{self.partition(rollout)}.{kind}.{instance}.{slot}.request.{rollout}.{key}")

    def copied(self, kind: str, instance: str, rollout: str, key: str) -> str:
        """A call that a fork has from its parent; no pool takes it."""
        start = f"{self.namespace}.{self.partition(rollout)}"
        return _of(8, f"{start}.{kind}.{instance}.{COPIED}.request.{rollout}.{key}")

    def reply(self, worker: str, rollout: str, key: str) -> str:
        """The answer to a call, for the worker that waits."""
        return _of(6, f"{self.namespace}.{self.partition(rollout)}.reply.{worker}.{rollout}.{key}")

    def ended(self, run: str, rollout: str) -> str:
        """The one terminal event of a rollout, whatever its outcome."""
        return _of(6, f"{self.namespace}.{self.partition(rollout)}.rollout.ended.{run}.{rollout}")

    def adopted(self, run: str, rollout: str, epoch: int) -> str:
        """Another worker's taking over, numbered from 1."""
        return _of(7, f"{self.namespace}.{self.partition(rollout)}.rollout.adopted.{run}.{rollout}.{epoch}")

    def revised(self, run: str, rollout: str, number: int) -> str:
        """A later re-score, numbered from 1."""
        return _of(7, f"{self.namespace}.{self.partition(rollout)}.rollout.revised.{run}.{rollout}.{number}")

    def cancel(self, run: str, rollout: str) -> str:
        """The cancellation of one rollout."""
        if rollout == NO_ROLLOUT:
            raise InvalidName(f"the cancellation of a rollout {rollout!r} would be that of its run")
        return _of(5, f"{self.namespace}.{self.partition(rollout)}.cancel.{run}.{rollout}")

    def cancel_run(self, partition: int, run: str) -> str:
        """The cancellation of a run in one partition."""
        return _of(5, f"{self.namespace}.{partition}.cancel.{run}.{NO_ROLLOUT}")

    def dead(self, partition: int, kind: str, instance: str, rollout: str, number: str) -> str:
        """A dead letter."""
        return _of(7, f"{self.namespace}.{partition}.dead.{kind}.{instance}.{rollout}.{number}")

    def settled(self, letter: str) -> str:
        """The decision about the dead letter with this subject."""
        return _of(8, f"{letter}.settled")

    def policy(self, instance: str, version: int) -> str:
        """A policy version of a model instance."""
        return _of(5, f"{self.namespace}.0.policy.{instance}.{version}")

    def feed(self, run: str, feed: str, number: int) -> str:
        """A record of a trainer's feed, numbered from 0."""
        return _of(6, f"{self.namespace}.0.feed.{run}.{feed}.{number}")

    def deployment(self, what: Deployment, identifier: str) -> str:
        """A fact about the deployment itself."""
        return _of(5, f"{self.namespace}.0.deployment.{what}.{identifier}")

    def blob(self, digest: str, layout: str, number: int, part: str = "") -> str:
        """One piece of a blob, numbered from 0; `part` is the digest of the blob that stands before it, if any."""
        return f"{self.namespace}.blob.{digest}.{layout}.{number}{part and '.'}{part}"

    # Filters: what a consumer or a read asks for.

    def pool_prefix(self, partition: int, kind: Kind, instance: str, slot: int) -> str:
        """What the subject of each request to one slot of a pool begins with."""
        return f"{self.namespace}.{partition}.{kind}.{instance}.{slot}.request."

    def replies_of(self, partition: int, worker: str) -> str:
        """All answers to one worker."""
        return f"{self.namespace}.{partition}.reply.{worker}.>"

    def ended_of(self, partition: int, run: str) -> str:
        """All terminal events of one run, or of all runs with `*`."""
        return f"{self.namespace}.{partition}.rollout.ended.{run}.>"

    def revised_of(self, partition: int, run: str) -> str:
        """All later scores of one run, or of all runs with `*`."""
        return f"{self.namespace}.{partition}.rollout.revised.{run}.>"

    def dead_letters(self, partition: int) -> str:
        """All dead letters."""
        return f"{self.namespace}.{partition}.dead.*.*.*.*"

    def settlements(self, partition: int) -> str:
        """All decisions about dead letters."""
        return f"{self.dead_letters(partition)}.settled"

    def cancels_of(self, partition: int) -> str:
        """All cancellations."""
        return f"{self.namespace}.{partition}.cancel.*.*"

    def policies_of(self, instance: str) -> str:
        """All policy versions of a model instance."""
        return f"{self.namespace}.0.policy.{instance}.*"

    def feed_of(self, run: str, feed: str) -> str:
        """All records of a trainer's feed."""
        return f"{self.namespace}.0.feed.{run}.{feed}.*"

    def adopted_of(self, partition: int) -> str:
        """All adoptions."""
        return f"{self.namespace}.{partition}.rollout.adopted.>"

    def blob_of(self, digest: str) -> str:
        """All pieces of a blob."""
        return f"{self.namespace}.blob.{digest}.>"

    def history_of(self, rollout: str) -> list[str]:
        """The filters that together match every event of one rollout and no other.

        The kinds are written out: under a wildcard in their place the server would walk all replies too, which are as
        many as the stream has (3 ms a read instead of 0.3 at 180,000 subjects).
        """
        start = f"{self.namespace}.{self.partition(rollout)}"
        return [
            *(f"{start}.{kind}.*.*.request.{rollout}.*" for kind in get_args(Kind)),
            f"{start}.reply.*.{rollout}.*",
            f"{start}.rollout.*.*.{rollout}",
            f"{start}.rollout.*.*.{rollout}.*",
            f"{start}.dead.*.*.{rollout}.*",
            f"{start}.dead.*.*.{rollout}.*.settled",
        ]


def _of(tokens: int, subject: str) -> str:
    """The subject, if no part of it brought a dot of its own; other characters are refused at the publish."""
    if subject.count(".") != tokens - 1:
        raise InvalidName(f"subject {subject[:120]!r} was made of a name with a dot in it")
    return subject


def consumer_name(*parts: str | int) -> str:
    """A durable consumer's name; the parts are checked names, the last one of a pool is its slot number."""
    return "-".join(str(part) for part in parts)


def may_hold(subject: str, event: Event) -> bool:
    """Whether an event belongs under this subject: names it, and the rollout and the call that it names."""
    if event.subject != subject:
        return False
    if ".rollout." not in subject:  # soon said of most: the last tokens of requests and replies
        _, rollout, key = subject.rsplit(".", 2)
        if rollout == event.rolloutid and key == event.callkey:
            return True
    tokens = subject.split(".")
    form = tokens[2]
    if form == "reply":
        return tokens[4:] == [event.rolloutid, event.callkey]
    if form in _KINDS:
        return tokens[6:] == [event.rolloutid, event.callkey]
    return form != "rollout" or tokens[5:6] == [event.rolloutid]


def rollout_of(subject: str) -> str:
    """The rollout whose subject this is; empty if it has no such token, or none that is a valid ID."""
    match subject.split("."):
        case (
            [_, _, _, _, _, "request", rollout, _]
            | [_, _, "reply", _, rollout, _]
            | [_, _, "rollout", _, _, rollout, *_]
        ):
            try:
                return rollout_id(rollout)
            except InvalidName:
                return ""
    return ""

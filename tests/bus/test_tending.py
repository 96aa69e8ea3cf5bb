"""What takes how much of a log is added up; runs are archived and pruned whole, and nothing open is ever cut."""

import asyncio
import gzip
import json
import re
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from bus import Bus, LogConfig
from bus.catalog import entries
from bus.errors import BlobLost
from contracts.deployments import RunStarted
from contracts.events import Event
from contracts.ids import ROOT_CALL
from orchestrator.ageing import keep_young, prune_old
from orchestrator.archive import archive, new_file
from orchestrator.audit import audit
from orchestrator.errors import UsageError
from orchestrator.prune import Choice, choose, prune
from orchestrator.usage import RunUsage, usage
from replay.file_source import FileSource
from replay.imports import import_events
from tests.bus.conftest import Open
from tests.bus.events import models, reply, request, until

LARGE = msgspec.json.encode(["x" * 1_000] * 100)


async def begin(bus: Bus, run: str, rollouts: int) -> None:
    started = RunStarted(run_id=run, config={}, rollouts=rollouts, skipped_lines=0, inputs_sha256="")
    await bus.publish(
        bus.event("deployment.run", bus.subjects.deployment("run", run), msgspec.json.encode(started)),
    )


async def roll(bus: Bus, run: str, number: int, *, ends: bool = True, said: bytes = b'{"n": 1}') -> str:
    """One rollout with a model call and its reply."""
    rollout = f"{run}-{number}"
    await bus.publish(
        bus.event(
            "rollout.requested",
            bus.subjects.request("agents", "solver", 1, rollout, ROOT_CALL),
            b"{}",
            rolloutid=rollout,
            callkey=ROOT_CALL,
            replyto=bus.subjects.ended(run, rollout),
        )
    )
    await bus.publish(request(bus, rollout, data=said))
    await bus.publish(reply(bus, rollout))
    if ends:
        await end(bus, run, rollout)
    return rollout


async def end(bus: Bus, run: str, rollout: str) -> None:
    await bus.publish(bus.event("rollout.completed", bus.subjects.ended(run, rollout), b"{}", rolloutid=rollout))


async def everything(bus: Bus) -> list[Event]:
    return [
        recorded.event for partition in range(bus.config.partitions) async for recorded in bus.scan(partition=partition)
    ]


async def rollouts(bus: Bus) -> set[str]:
    return {event.rolloutid for event in await everything(bus) if event.rolloutid}


async def chosen(bus: Bus, choice: Choice, *, served: bool = False) -> list[str]:
    return [run.run for run in choose((await usage(bus)).runs, choice, served=served)]


async def test_usage_adds_up_types_runs_blobs_and_the_largest_rollouts(bus: Bus) -> None:
    await begin(bus, "one", 2)
    await roll(bus, "one", 0, said=LARGE)
    await roll(bus, "one", 1, said=LARGE)
    await roll(bus, "two", 0, ends=False, said=b'"' + b"y" * 20_000 + b'"')
    found = await usage(bus, largest=2)
    assert (found.events, found.blobs) == (12, 1)
    assert found.blob_bytes == len(LARGE)
    assert {each.type: each.events for each in found.types} == {
        "model.requested": 3,
        "rollout.requested": 3,
        "model.replied": 3,
        "rollout.completed": 2,
        "deployment.run": 1,
    }
    assert found.types[0].type == "model.requested"
    assert sum(each.bytes for each in found.types) == sum(each.bytes for each in found.runs) == found.bytes
    one, two = found.runs
    assert (one.run, one.rollouts, one.open, one.events, one.blob_bytes) == ("one", 2, 0, 9, len(LARGE))
    assert (two.run, two.rollouts, two.open, two.events, two.blob_bytes) == ("two", 1, 1, 3, 0)
    assert (one.finished, two.finished) == (True, False)
    assert [(each.rollout, each.blob_bytes) for each in found.largest][1][1] == len(LARGE)


async def test_a_pruned_run_is_gone_and_all_else_is_as_it_was(bus: Bus) -> None:
    """Cut off in one piece at the start of the log, and picked out where it is mixed with what stays."""
    for run in ("one", "two"):
        await begin(bus, run, 3)
    for number in range(3):
        await roll(bus, "one", number)
    for number in range(3):
        await roll(bus, "two", number)
        await roll(bus, "three", number, ends=number != 1)
    before = {event.id: event for event in await everything(bus)}
    assert (await prune(bus, ["two"])).events == 13
    assert await rollouts(bus) == {f"{run}-{number}" for run in ("one", "three") for number in range(3)}
    assert (await prune(bus, ["one"])).events == 13
    left = await everything(bus)
    assert {event.rolloutid for event in left} == {"three-0", "three-1", "three-2"}
    assert len(left) == 11
    assert all(before[event.id] == event for event in left)
    found = await audit(bus, "three")
    assert (found.balanced, found.requested, found.in_flight) == (True, 3, 1)
    assert not (await audit(bus, "one")).exists


async def test_what_a_deployment_said_of_itself_stays(bus: Bus) -> None:
    await bus.publish(bus.event("deployment.resolved", bus.subjects.deployment("resolved", "d1"), b"{}"))
    await begin(bus, "one", 1)
    await roll(bus, "one", 0)
    await prune(bus, ["one"])
    assert [event.type for event in await everything(bus)] == ["deployment.resolved"]


async def test_an_open_rollout_is_never_cut(bus: Bus) -> None:
    await roll(bus, "one", 0)
    open_rollout = await roll(bus, "one", 1, ends=False)
    before = await everything(bus)
    with pytest.raises(UsageError, match="run one has 1 open rollouts: resume or cancel it first"):
        await chosen(bus, Choice(named=("one",)))
    assert await chosen(bus, Choice(keep=0)) == []
    with pytest.raises(UsageError, match=f"rollout {open_rollout} is open, so nothing was pruned"):
        await prune(bus, ["one"])
    assert await everything(bus) == before


async def test_runs_are_chosen_by_name_by_age_and_by_number(bus: Bus) -> None:
    now = datetime.now(UTC)
    runs = [
        RunUsage(
            run=name,
            rollouts=1,
            open=name == "open",
            not_yet_asked=int(name == "half"),
            events=1,
            bytes=1,
            blob_bytes=0,
            last=now - timedelta(days=age),
            trained=False,
        )
        for name, age in (("", 9), ("old", 8), ("open", 7), ("half", 6), ("mid", 5), ("new", 0))
    ]

    def of(choice: Choice, *, served: bool = False) -> list[str]:
        return [run.run for run in choose(runs, choice, served=served)]

    assert of(Choice(keep=0)) == ["old", "mid", "new"]
    assert of(Choice(keep=1)) == ["old", "mid"]
    assert of(Choice(older_than=timedelta(days=6))) == ["old"]
    assert of(Choice(older_than=timedelta(days=1), keep=2)) == ["old"]
    assert of(Choice(named=("new", "half", "new"))) == ["new", "half"]
    with pytest.raises(UsageError, match="half has not asked for 1 of its rollouts yet, and workers serve this log"):
        of(Choice(named=("half",)), served=True)
    with pytest.raises(UsageError, match="no run 'odl'; did you mean 'old'"):
        of(Choice(named=("odl",)))


async def aged(bus: Bus, *, collected: str | None = None, keep_blobs: bool = False) -> str:
    """What is said when everything that is over is too old."""
    said: list[str] = []
    await prune_old(bus, timedelta(0), said.append, collected=collected, keep_blobs=keep_blobs)
    return "".join(said)


async def test_old_runs_leave_a_log_and_nothing_that_goes_on_is_cut(bus: Bus) -> None:
    """B9: not what is open or still to be asked for, not what is collected now, not what a trainer takes from."""
    for run, planned in {"over": 1, "open": 1, "half": 2, "ours": 1}.items():
        await begin(bus, run, planned)
        await roll(bus, run, 0, ends=run != "open")
    await roll(bus, "trained", 0)
    await bus.publish(bus.event("feed.opened", bus.subjects.feed("trained", "trainer", 0), b"{}"))
    assert re.fullmatch(
        r"pruned 1 run that ended longer ago than log\.max_age: over \(5 events, .* kB\)",
        await aged(bus, collected="ours"),
    )
    assert await rollouts(bus) == {"open-0", "half-0", "ours-0", "trained-0"}
    await end(bus, "open", "open-0")
    assert "pruned 2 runs that ended longer ago than log.max_age: ours, open" in await aged(bus)
    assert await aged(bus) == ""
    assert await rollouts(bus) == {"half-0", "trained-0"}


async def test_runs_leave_a_log_while_it_is_used_as_soon_as_they_are_old(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orchestrator.ageing.OFTEN", timedelta(milliseconds=20))
    said: list[str] = []
    keeping = asyncio.create_task(keep_young(bus, timedelta(milliseconds=200), said.append, collected=None))
    for number in range(2):
        await roll(bus, f"run{number}", 0)
        await until(lambda: len(said) == number + 1)  # noqa: B023 - it is called in this round
        assert f"log.max_age: run{number} (" in said[number]
    keeping.cancel()
    assert await rollouts(bus) == set()


async def test_blobs_of_old_runs_stay_where_others_may_refer_to_them_until_a_deployment_starts(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    await roll(bus, "one", 0, said=LARGE)
    await aged(bus, keep_blobs=True)
    monkeypatch.setattr("orchestrator.ageing.OFTEN", timedelta(milliseconds=20))
    said: list[str] = []
    keeping = asyncio.create_task(keep_young(bus, timedelta(milliseconds=200), said.append, collected=None))
    await roll(bus, "two", 0, said=LARGE.replace(b"x", b"y"))
    await until(lambda: len(said) == 1)
    keeping.cancel()
    assert await rollouts(bus) == set()
    assert (await usage(bus)).blobs == 2
    assert "pruned 2 blobs that nothing needs any more: " in await aged(bus)
    assert (await usage(bus)).blobs == 0
    assert await aged(bus) == ""


async def test_blobs_go_with_the_last_event_that_refers_to_them(bus: Bus) -> None:
    shared, own = LARGE, LARGE.replace(b"x", b"y")
    await roll(bus, "one", 0, said=shared)
    await roll(bus, "one", 1, said=own)
    await roll(bus, "two", 0, said=shared)
    kept = next(event for event in await everything(bus) if event.rolloutid == "two-0" and event.dataref)
    gone = next(event for event in await everything(bus) if event.rolloutid == "one-1" and event.dataref)
    pruned = await prune(bus, ["one"])
    assert (pruned.blobs, pruned.blob_bytes, pruned.blobs_left) == (1, len(own), 0)
    assert await bus.fetch_data(kept) == shared
    with pytest.raises(BlobLost):
        await bus.fetch_data(gone)
    assert (await prune(bus, ["two"])).blobs == 1
    assert (await usage(bus)).blobs == 0


async def test_an_image_goes_with_the_last_blob_that_has_it(bus: Bus, url: str, open_bus: Open, tmp_path: Path) -> None:
    """It is in the tasks of both runs, amid other text; an archive has it in each, and an import stores it once."""

    def said(text: str) -> bytes:
        return b'{\n"text": "%b", "image": "%b"}' % (text.encode(), b"A" * 100_000)

    await roll(bus, "one", 0, said=said("a"))
    await roll(bus, "one", 1, said=said("b"))
    await roll(bus, "two", 0, said=said("c"))
    found = await usage(bus)
    small = len(said("")) - 100_000 + 1
    assert (found.blobs, found.blob_bytes) == (4, 100_000 + 3 * small)
    assert [run.blob_bytes for run in found.runs] == [100_000 + 2 * small, 100_000 + small]
    assert [rollout.blob_bytes for rollout in found.largest] == [100_000 + small] * 3
    pruned = await prune(bus, ["one"])
    assert (pruned.blobs, pruned.blob_bytes) == (2, 2 * small)
    kept = next(event for event in await everything(bus) if event.dataref)
    assert await bus.fetch_data(kept) == said("c")
    with new_file(tmp_path / "two.jsonl") as file:
        assert (await archive(bus, "two", file)).blobs == 1
    source = FileSource([tmp_path / "two.jsonl"])
    archived = next(each.event for each in await source.history("two-0") if each.event.dataref)
    assert await source.data(archived) == said("c")
    assert (await prune(bus, ["two"])).blobs == 2
    assert (await usage(bus)).blobs == 0
    await import_events(source, await open_bus(url))
    kept = next(event for event in await everything(bus) if event.dataref)
    assert await bus.fetch_data(kept) == said("c")
    assert (await usage(bus)).blob_bytes == 100_000 + small


async def test_blobs_stay_while_somebody_serves_the_log(bus: Bus) -> None:
    """A writer remembers which blobs it has stored, and refers to them without storing them again."""
    await roll(bus, "one", 0, said=LARGE)
    pool = await models(bus)
    pruned = await prune(bus, ["one"])
    assert (pruned.blobs, pruned.blobs_left) == (0, 1)
    await roll(bus, "two", 0, said=LARGE)
    event = next(event for event in await everything(bus) if event.dataref)
    assert await bus.fetch_data(event) == LARGE
    await pool.close()


async def test_blobs_that_no_event_needs_go_with_the_next_pruning_whatever_left_them(bus: Bus) -> None:
    """One that had to leave them since the log was served, or was cut off, and a writer that died before its event."""
    await roll(bus, "one", 0, said=LARGE)
    pool = await models(bus)
    assert (await prune(bus, ["one"])).blobs_left == 1
    await pool.close()
    await bus.store_blob(LARGE.replace(b"x", b"y"))
    kept = b'{"text": "a", "image": "%b"}' % (b"A" * 100_000)
    await roll(bus, "two", 0, said=kept, ends=False)
    pruned = await prune(bus, [])
    assert (pruned.events, pruned.blobs, pruned.blob_bytes, pruned.blobs_left) == (0, 2, 2 * len(LARGE), 0)
    assert (await usage(bus)).blobs == 2
    event = next(event for event in await everything(bus) if event.dataref)
    assert await bus.fetch_data(event) == kept


async def test_a_blob_whose_event_comes_while_a_log_is_pruned_stays(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    async def late(*arguments: Any) -> Any:
        async with aclosing(entries(*arguments)) as found:
            async for entry in found:
                yield entry
        await roll(bus, "two", 0, said=LARGE)

    monkeypatch.setattr("orchestrator.prune.entries", late)
    await roll(bus, "one", 0)
    assert (await prune(bus, ["one"])).blobs == 0
    event = next(event for event in await everything(bus) if event.dataref)
    assert await bus.fetch_data(event) == LARGE


async def test_a_pruning_that_was_cut_off_is_finished_by_the_next(bus: Bus) -> None:
    """Requests go first and ends last, so that nothing of the run ever looks open."""
    await begin(bus, "one", 2)
    await roll(bus, "two", 0, ends=False)
    for number in range(2):
        await roll(bus, "one", number)
    for form in ("deployment.run.one", "agents.*.*.request.one-0.run", "agents.*.*.request.one-1.run"):
        body = {"filter": f"{bus.config.namespace}.0.{form}"}
        await bus._connection.api(f"STREAM.PURGE.{bus.subjects.stream(0)}", body, dict[str, Any])
    assert await chosen(bus, Choice(keep=0)) == ["one"]
    await prune(bus, ["one"])
    assert await rollouts(bus) == {"two-0"}


async def test_partitions_are_pruned_alike(url: str, config: LogConfig) -> None:
    spread = config.model_copy(update={"partitions": 3})
    async with await Bus.connect(url, spread, name="test", writer="w") as bus:
        await bus.ensure_log()
        for number in range(9):
            await roll(bus, "one", number)
            await roll(bus, "two", number)
        assert (await prune(bus, ["one"])).events == 36
        assert await rollouts(bus) == {f"two-{number}" for number in range(9)}


@pytest.mark.parametrize("name", ["run.jsonl", "run.jsonl.gz"])
async def test_an_archive_is_read_by_replay_as_the_log_was(bus: Bus, tmp_path: Path, name: str) -> None:
    await begin(bus, "one", 2)
    for number in range(2):
        await roll(bus, "one", number, said=LARGE)
    await roll(bus, "two", 0)
    with new_file(tmp_path / name) as file:
        found = await archive(bus, "one", file)
    assert (found.rollouts, found.open, found.events, found.blobs, found.unreadable) == (2, 0, 9, 1, 0)
    written = (tmp_path / name).read_bytes()
    plain = tmp_path / "plain.jsonl"
    plain.write_bytes(gzip.decompress(written) if name.endswith(".gz") else written)
    source = FileSource([plain])
    for rollout in ("one-0", "one-1"):
        recorded = await bus.history(rollout)
        read = await source.history(rollout)
        assert [each.raw for each in read] == [each.raw for each in recorded]
        assert [await source.data(each.event) for each in read] == [await bus.fetch_data(e.event) for e in recorded]
    assert await source.history("two-0") == []
    assert [each.event.type for each in await source.deployment()] == ["deployment.run"]


def test_a_file_is_there_whole_or_not_at_all_and_none_is_written_over(tmp_path: Path) -> None:
    path = tmp_path / "new" / "run.jsonl"
    with pytest.raises(RuntimeError), new_file(path):
        raise RuntimeError
    assert list(tmp_path.rglob("*.jsonl*")) == []
    with new_file(path) as file:
        file.write(b"whole")
    with pytest.raises(UsageError, match="exists already"), new_file(path):
        pass
    assert path.read_bytes() == b"whole"


async def test_lines_stay_lines_where_an_event_holds_a_line_break(bus: Bus, tmp_path: Path) -> None:
    await roll(bus, "one", 0, said=b'{\n "n": 1}')
    with new_file(tmp_path / "run.jsonl") as file:
        await archive(bus, "one", file)
    found = [json.loads(line) for line in (tmp_path / "run.jsonl").read_text().splitlines()]
    assert [event["type"] for event in found][1] == "model.requested"
    assert found[1]["data"] == {"n": 1}

"""How much memory do the verbs of `replay` take for one long rollout? It should not grow with the rollout.

Writes a rollout of an agent that takes thousands of turns and remembers only the last one: replies of 10 kB with the
tokens of 2,500, outputs of tools of 40 kB and in every eighth turn of 200 kB, which is a claim check. Then each verb
reads it in a process of its own, out of the exported file or out of a log, once as long as that and once of 40 MB or a
fifth: what is held of any rollout is full by then.

    python benchmarks/long_rollout.py [--megabytes 200] [--from log] [--verbs show,verify] [--json]

What it prints:

    megabytes           of the file
    events              in it
    source              file, or log
    peak_mb             by verb, the largest memory of its process
    start_mb            by verb, the same for the short one
    bytes_an_event      by verb, what each event beyond these adds
    seconds             by verb, by the clock
"""

import argparse
import asyncio
import hashlib
import json
import random
import string
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, BinaryIO, Final

import msgspec

from bus import EmbeddedServer, LogConfig, Subjects
from components.agents.base import Agent, AgentConfig
from components.durable import Call, Reply
from components.loading import add_roots, digest, load
from components.workers.ending import ending
from components.workers.execution import execution_of
from components.workers.tally import Tally
from contracts.codec import encode
from contracts.deployments import Description, ResolvedDeployment, WorkerStarted
from contracts.events import NOTHING, Event
from contracts.ids import ROOT_CALL
from contracts.responses import Item, Response, function_call, output_message
from contracts.rollouts import RolloutRequest, Verdict
from contracts.tokens import Capture, PolicySpan, pack_ids, pack_logprobs
from replay.file_source import blob_line

PROJECT: Final = Path(__file__).resolve().parent / "project"
ROLLOUT: Final = "long-00000-00"
TURN_BYTES: Final = 172_000
"""Of the file, that a turn takes; events of it: 4."""
FEW: Final = 4

_INLINE: Final = 65_536
_START_MB: Final = 40.0
_TOKENS: Final = 2_500
_LARGE_EVERY: Final = 8
_FOLDER: Final = "/var/tmp" if Path("/var/tmp").is_dir() else None  # noqa: S108 - `/tmp` is memory on many machines
_SUBJECTS: Final = Subjects("jetgym", 1)
_NOISE: Final = "".join(random.Random(1).choices(string.ascii_letters + "     \n", k=1_000_000))  # noqa: S311
_BASE: Final = ("--file", "{file}", "--run", "long")
VERBS: Final[dict[str, tuple[str, ...]]] = {
    "show": ("show", ROLLOUT),
    "show --raw": ("show", ROLLOUT, "--raw"),
    "show --json": ("show", ROLLOUT, "--json"),
    "verify": ("verify", ROLLOUT, "--json"),
    "diff": ("diff", ROLLOUT, ROLLOUT, "--with-file", "{other}"),
    "diff --json": ("diff", ROLLOUT, ROLLOUT, "--with-file", "{other}", "--json"),
    "whatif": ("whatif", ROLLOUT, "--at", "end"),
    "step": ("step", ROLLOUT, "--at", "end", "--json"),
    "why": ("why", "end", ROLLOUT),
    **{f"export {form}": ("export", ROLLOUT, "--format", form) for form in ("events", "golden", "items", "chat")},
    **{f"export {form}": ("export", ROLLOUT, "--format", form) for form in ("otlp", "chrome", "html")},
}
_FORGIVEN: Final = {"diff": 1, "diff --json": 1}
"""Exit codes that are no failure: the two rollouts differ."""

_LAUNCH: Final = """
import json, resource, subprocess, sys, time
began = time.monotonic()
done = subprocess.run(sys.argv[1:], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
print(json.dumps([done.returncode, peak, time.monotonic() - began, done.stderr.decode()]))
"""
"""A process as small as can be, since the memory of who starts a process counts as that process's."""


class _Exported:
    """Writes a file of exported events, as a log of this rollout would be exported."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.now = datetime(2025, 1, 2, 3, 4, 5, tzinfo=UTC)
        self.events = 0

    def write(self, what: str, subject: str, data: bytes, *, capture: bytes = b"null", **more: Any) -> Event:
        self.now += timedelta(milliseconds=250)
        self.events += 1
        dataref = captureref = ""
        if len(data) > _INLINE:
            data, dataref = b"null", self._blob(data)
        if len(capture) + len(data) > _INLINE:
            capture, captureref = b"null", self._blob(capture)
        source = more.pop("source", "orchestrator/o1")
        event = Event(
            id=f"{source.rpartition('/')[2]}-{self.events}",
            source=source,
            type=what,
            time=self.now,
            subject=subject,
            data=NOTHING if data == b"null" else msgspec.Raw(data),
            dataref=dataref,
            capture=NOTHING if capture == b"null" else msgspec.Raw(capture),
            captureref=captureref,
            **more,
        )
        self._file.write(encode(event) + b"\n")
        return event

    def _blob(self, data: bytes) -> str:
        reference = f"sha256:{hashlib.sha256(data).hexdigest()}"
        self._file.write(blob_line(reference, data) + b"\n")
        return reference


def write(path: Path, megabytes: float, *, changed_every: int = 0) -> int:
    """Writes a file of about that size; returns its events. The output of each so-manieth turn can be another one."""
    turns = max(FEW, int(megabytes * 1e6 / TURN_BYTES))
    add_roots([PROJECT])
    agent: type[Agent[Any]] = load("agents", "forgetful")
    config = agent.config_class().model_validate({"model": "policy", "resources": "tools"})
    with path.open("wb") as file:
        exported = _Exported(file)
        _deployment(exported, config)
        _rollout(exported, agent, config, turns, changed_every)
        return exported.events


def _deployment(exported: _Exported, config: AgentConfig) -> None:
    description = Description(kind="agents", implementation="forgetful", config=config.model_dump(mode="json"))
    resolved = ResolvedDeployment(
        config={}, descriptions={"reader": description}, log={"namespace": "jetgym", "partitions": 1}
    )
    exported.write("deployment.resolved", _SUBJECTS.deployment("resolved", "d1"), msgspec.json.encode(resolved))
    started = WorkerStarted(
        worker="reader-0-aaa",
        kind="agents",
        instance="reader",
        implementation="forgetful",
        version="1",
        digest=digest("agents", "forgetful"),
        python=f"{sys.version_info.major}.{sys.version_info.minor}",
        jetgym="0.1.0",
        host="here",
        pid=1,
    )
    exported.write("deployment.worker", _SUBJECTS.deployment("worker", started.worker), msgspec.json.encode(started))


def _rollout(exported: _Exported, agent: type[Agent[Any]], config: AgentConfig, turns: int, changed_every: int) -> None:
    params = {"input": [{"role": "user", "content": "Read all of it."}], "model": "m", "instructions": "Be patient."}
    task = msgspec.Raw(msgspec.json.encode({"responses_create_params": params, "turns": turns}))
    request = RolloutRequest(task=task, agent="reader", run_id="long", sessionless=("tools",))
    source = "agents/reader/reader-0-aaa"
    event = exported.write(
        "rollout.requested",
        _SUBJECTS.request("agents", "reader", 1, ROLLOUT, ROOT_CALL),
        msgspec.json.encode(request),
        rolloutid=ROLLOUT,
        callkey=ROOT_CALL,
        replyto=_SUBJECTS.ended("long", ROLLOUT),
    )
    execution, tally = execution_of(agent, config, event, request), Tally(event.time)
    waiting, replies = execution.start(), 0
    while waiting:
        (call,) = waiting
        key: dict[str, Any] = {"rolloutid": ROLLOUT, "callkey": call.key}
        asked = exported.write(
            call.type,
            _SUBJECTS.request(call.kind, call.instance, 1, ROLLOUT, call.key),
            call.data,
            replyto=_SUBJECTS.reply("reader-0-aaa", ROLLOUT, call.key),
            source=source,
            causationid=call.cause,
            **key,
        )
        data, capture = _answer(call, replies // 2, changed_every)
        replies += 1
        reply = exported.write(
            call.type.replace("requested", "replied"),
            asked.replyto,
            data,
            capture=capture,
            source=f"{call.kind}/{call.instance}/{call.instance}-0-bbb",
            causationid=asked.id,
            elapsed=0.2,
            **key,
        )
        tally.add(reply, data)
        waiting = execution.deliver(Reply(key=call.key, type=reply.type, data=data, time=reply.time, id=reply.id))
    what, data = ending(event, execution, tally.stats(event.time, exported.now))
    exported.write(what, event.replyto, data, rolloutid=ROLLOUT, callkey=ROOT_CALL, source=source, causationid=event.id)


def _answer(call: Call, turn: int, changed_every: int) -> tuple[bytes, bytes]:
    """Data and capture of the reply."""
    if call.type == "verify.requested":
        return msgspec.json.encode(Verdict(reward=1.0)), b"null"
    if call.type == "tool.requested":
        changed = "changed " if changed_every and turn % changed_every == 0 else ""
        text = changed + _text(turn, 200_000 if turn % _LARGE_EVERY == 0 else 40_000)
        return msgspec.json.encode({"output": text}), b"null"
    said: list[Item] = [
        output_message(_text(turn, 10_000), item_id=f"msg_{turn}"),
        function_call(f"call_{turn}", "read", f'{{"page": {turn}}}'),
    ]
    reply = Response(id=f"resp_{turn}", object="response", created_at=0, model="m", output=said, status="completed")
    capture = Capture(
        generated=pack_ids(range(turn, turn + _TOKENS)),
        logprobs=pack_logprobs([-0.25] * _TOKENS),
        spans=(PolicySpan(version=1, count=_TOKENS),),
    )
    return reply.to_json(), msgspec.json.encode(capture)


def _text(turn: int, length: int) -> str:
    start = turn * 7_919 % (len(_NOISE) - length)
    return f"{turn}: {_NOISE[start : start + length]}"


def run(arguments: Sequence[str], folder: Path, verb: str = "") -> tuple[float, float]:
    """Largest memory of `replay` with these arguments, in MB, and its seconds."""
    command = [sys.executable, "-P", "-m", "replay", *arguments]
    launch = [sys.executable, "-S", "-c", _LAUNCH, *command]
    said = subprocess.run(launch, cwd=folder, capture_output=True, text=True, check=True)
    code, peak_kb, seconds, errors = json.loads(said.stdout)
    if code not in (0, _FORGIVEN.get(verb)):
        sys.exit(f"{' '.join(arguments)} ended with {code}: {errors}")
    return peak_kb / 1024, seconds


class Rollouts:
    """A rollout in a file, another one to compare it with, and where a log with it is."""

    def __init__(self, folder: Path, megabytes: float) -> None:
        self.file, self.other = folder / "long.jsonl", folder / "other.jsonl"
        self.events = write(self.file, megabytes)
        write(self.other, megabytes, changed_every=10)
        self.url = ""

    def arguments(self, verb: str) -> list[str]:
        """The command line of a verb."""
        where = ["--url", self.url] if self.url else ["--file", str(self.file)]
        return [word.format(other=self.other) for word in VERBS[verb]] + where

    @asynccontextmanager
    async def in_log(self, folder: Path) -> AsyncIterator[None]:
        """Has it in a log while this lasts."""
        log = LogConfig(durability="fast")
        server = await EmbeddedServer.start(folder / "store", log)
        try:
            await asyncio.to_thread(run, ["import", str(self.file), "--url", server.url], PROJECT)
            self.url = server.url
            yield
        finally:
            self.url = ""
            await server.stop()


async def measure(megabytes: float, verbs: Sequence[str], *, log: bool) -> dict[str, Any]:
    """The figures."""
    found: list[dict[str, tuple[float, float]]] = []
    events = []
    for size in (min(_START_MB, megabytes / 5), megabytes):
        with tempfile.TemporaryDirectory(dir=_FOLDER) as name:
            folder = Path(name)
            rollouts = await asyncio.to_thread(Rollouts, folder, size)
            events.append(rollouts.events)
            found.append({})
            if log:
                async with rollouts.in_log(folder):
                    for verb in verbs:
                        found[-1][verb] = await asyncio.to_thread(_run, rollouts, verb)
            else:
                for verb in verbs:
                    found[-1][verb] = _run(rollouts, verb)
            written = rollouts.file.stat().st_size
    few, many = found
    grown = {verb: (peak - few[verb][0]) * 1024 * 1024 for verb, (peak, _) in many.items()}
    return {
        "megabytes": round(written / 1e6),
        "events": events[1],
        "source": "log" if log else "file",
        "peak_mb": {verb: round(peak) for verb, (peak, _) in many.items()},
        "start_mb": {verb: round(peak) for verb, (peak, _) in few.items()},
        "bytes_an_event": {verb: round(more / max(1, events[1] - events[0])) for verb, more in grown.items()},
        "seconds": {verb: round(seconds, 1) for verb, (_, seconds) in many.items()},
    }


def _run(rollouts: Rollouts, verb: str) -> tuple[float, float]:
    return run(rollouts.arguments(verb), PROJECT, verb)


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=float, default=200)
    parser.add_argument("--from", dest="source", choices=("file", "log"), default="file")
    parser.add_argument("--verbs", default=",".join(VERBS), help="which, with commas between them; default: all")
    parser.add_argument("--json", action="store_true", help="one JSON line")
    given = parser.parse_args()
    verbs = given.verbs.split(",")
    if unknown := set(verbs) - set(VERBS):
        parser.error(f"there is no verb {', '.join(unknown)}; there are: {', '.join(VERBS)}")
    found = asyncio.run(measure(given.megabytes, verbs, log=given.source == "log"))
    if given.json:
        print(json.dumps(found))
        return
    print(f"{found['megabytes']:,} MB, {found['events']:,} events, {found['source']}")
    for verb in verbs:
        grown = f"{found['start_mb'][verb]:>5} to {found['peak_mb'][verb]:>5} MB"
        print(f"{verb:<16} {grown}  {found['bytes_an_event'][verb]:>6} B an event  {found['seconds'][verb]:>6} s")


if __name__ == "__main__":
    main()

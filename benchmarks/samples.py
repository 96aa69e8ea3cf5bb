"""How fast rollouts become samples, and how many bytes a token takes in a log.

Rollouts are conversations of 20 turns: a prompt of 1,500 tokens, then in each turn 150 generated tokens and 150 of a
tool's result, with about 4 bytes of text a token. Their model requests and captures cite what was said before, as those
of agents and model workers do. Counted are the tokens of the samples that come out.

    python benchmarks/samples.py --json

    tokens_per_s           tokens of samples that one process builds, from events and their packed captures, in a second
                           of its CPU time: other work on the machine does not count
    decoded_tokens_per_s   the same, with the events decoded from their bytes first
    bytes_per_token        bytes on disk for each of these tokens, of a log with all events: text, tokens and all
    capture_bytes          bytes of that, before compression, that are captures
    tokens                 how many tokens were counted
"""

import argparse
import asyncio
import json
import random
import tempfile
import time
from array import array
from pathlib import Path

import msgspec

from bus import Bus, EmbeddedServer, LogConfig
from contracts.codec import decode
from contracts.contexts import Speaker
from contracts.events import Recorded
from contracts.samples import build_samples
from contracts.tokens import Capture, CitedTokens, PolicySpan

TURNS, PROMPT, GENERATED, RESULT = 20, 1500, 150, 150
VOCABULARY = 151_643
ROUNDS = 5
_NOTHING = msgspec.Raw(b"null")


def text(chance: random.Random, tokens: int) -> str:
    """About four bytes a token, of words that a compression finds again, as it does in real text."""
    return " ".join(chance.choices(WORDS, k=tokens * 2 // 3))


WORDS = ["".join(random.Random(n).choices("abcdefghijklmnopqrstuvwxyz", k=2 + n % 8)) for n in range(2000)]  # noqa: S311


def ids(chance: random.Random, count: int) -> bytes:
    """Token IDs, small ones more often, as a tokenizer orders them."""
    return array("i", (int(VOCABULARY * chance.random() ** 3) for _ in range(count))).tobytes()


def logprobs(chance: random.Random, count: int) -> bytes:
    """Log-probabilities, most of them near 0."""
    return array("f", (-(chance.random() ** 4) * 8 for _ in range(count))).tobytes()


async def write(bus: Bus, rollout: str, seed: int) -> None:
    """The events of one rollout into a log."""
    chance, speaker = random.Random(seed), Speaker()  # noqa: S311
    items = [{"role": "user", "content": text(chance, PROMPT)}]
    length, cited = 0, None
    for turn in range(TURNS):
        key = f"m_{turn}"
        data, asked = speaker.ask(msgspec.json.encode({"model": "policy", "input": items}))
        new = PROMPT if turn == 0 else RESULT
        call = {"type": "function_call", "name": "search", "call_id": f"c{turn}", "arguments": text(chance, GENERATED)}
        reply = msgspec.json.encode({"id": f"resp_{turn}", "object": "response", "output": [call]})
        capture = Capture(
            cited=cited,
            prompt=ids(chance, new),
            generated=ids(chance, GENERATED),
            logprobs=logprobs(chance, GENERATED),
            spans=(PolicySpan(turn // 7, GENERATED),),
            policy=(turn // 7, turn // 7),
            tokenizer="sha256:1f3c",
            template="sha256:77aa",
        )
        length += new + GENERATED
        cited = CitedTokens(call=key, count=length)
        requested = bus.event(
            "model.requested",
            bus.subjects.request("models", "policy", 1, rollout, key),
            data,
            rolloutid=rollout,
            callkey=key,
            replyto=bus.subjects.reply("agent-0-x", rollout, key),
        )
        await bus.publish(requested)
        replied = bus.event(
            "model.replied",
            requested.replyto,
            reply,
            rolloutid=rollout,
            callkey=key,
            causationid=requested.id,
            capture=msgspec.Raw(msgspec.json.encode(capture)),
        )
        await bus.publish(replied)
        speaker.hear(key, asked, reply)
        result = {"type": "function_call_output", "call_id": f"c{turn}", "output": text(chance, RESULT)}
        items = [*items, call, result]


async def measure(rollouts: int) -> dict[str, float]:
    """Writes a log, reads it, builds the samples."""
    with tempfile.TemporaryDirectory() as name:
        server = await EmbeddedServer.start(Path(name), LogConfig())
        try:
            async with await Bus.connect(server.url, LogConfig(), name="orchestrator/bench", writer="bench") as bus:
                await bus.ensure_log()
                for number in range(rollouts):
                    await write(bus, f"r-{number}", number)
                found = [await bus.history(f"r-{number}") for number in range(rollouts)]
        finally:
            await server.stop()
        disk = on_disk(Path(name))
    tokens = count(found)
    assert tokens == rollouts * (PROMPT + TURNS * GENERATED + (TURNS - 1) * RESULT)
    captures = sum(
        len(bytes(each.event.capture)) for events in found for each in events if each.event.capture != _NOTHING
    )
    return {
        "tokens_per_s": max(timed(found, tokens, decoded=True) for _ in range(ROUNDS)),
        "decoded_tokens_per_s": max(timed(found, tokens, decoded=False) for _ in range(ROUNDS)),
        "bytes_per_token": disk / tokens,
        "capture_bytes": captures / tokens,
        "tokens": tokens,
    }


def on_disk(folder: Path) -> int:
    """The bytes of the blocks of all streams."""
    return sum(path.stat().st_size for path in folder.rglob("*.blk"))


def timed(found: list[list[Recorded]], tokens: int, *, decoded: bool) -> float:
    """Tokens a second of this process."""
    started = time.process_time()
    if not decoded:
        found = [[msgspec.structs.replace(each, event=decode(each.raw)) for each in events] for events in found]
    assert count(found) == tokens
    return tokens / (time.process_time() - started)


def count(found: list[list[Recorded]]) -> int:
    """The tokens of all samples."""
    return sum(len(sample.tokens) for events in found for sample in build_samples(events).samples)


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON line")
    parser.add_argument("--rollouts", type=int, default=300, help="how many rollouts (300)")
    args = parser.parse_args()
    if args.rollouts < 1:
        parser.error("--rollouts must be at least 1")
    report = {name: round(value, 2) for name, value in asyncio.run(measure(args.rollouts)).items()}
    if args.json:
        print(json.dumps(report))
        return
    rate, decoded = report["tokens_per_s"] / 1e6, report["decoded_tokens_per_s"] / 1e6
    print(f"{rate:.1f} M tokens/s, with the decoding of events {decoded:.1f}")
    disk, captures = report["bytes_per_token"], report["capture_bytes"]
    print(f"{disk:.1f} bytes a token on disk; captures are {captures:.1f} before compression")


if __name__ == "__main__":
    main()

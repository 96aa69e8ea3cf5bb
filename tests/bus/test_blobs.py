"""The claim check: what is too large for an event is stored once beside it, before it."""

import base64
import hashlib
import random

import msgspec
import pytest

from bus import Bus, LogConfig, PayloadTooLarge
from bus.blobs import CHUNK_BYTES
from bus.catalog import stored_blobs
from bus.errors import BlobLost
from bus.parts import PART_BYTES
from bus.topology import stream_info
from tests.bus.conftest import Open
from tests.bus.events import models, request, take

INLINE = 4_096
LIMIT = 2 * 1024 * 1024
IMAGE = base64.b64encode(random.Random(1).randbytes(CHUNK_BYTES))


@pytest.fixture
def config(config: LogConfig) -> LogConfig:
    return config.model_copy(update={"inline_limit": INLINE, "blob_limit": LIMIT})


def text(size: int) -> bytes:
    """JSON of exactly `size` bytes, without a long string."""
    return b'["x"' + b',"x"' * ((size - 5) // 4) + b" " * ((size - 5) % 4) + b"]"


async def chunks(bus: Bus) -> int:
    """Pieces of blobs in the log."""
    return (await stream_info(bus._connection, bus.subjects.blob_stream)).state.messages


@pytest.mark.parametrize(("size", "stored_chunks"), [(INLINE - 1, 0), (INLINE, 0), (INLINE + 1, 1)])
async def test_data_under_and_at_the_inline_limit_is_in_the_event_and_over_it_by_reference(
    bus: Bus, size: int, stored_chunks: int
) -> None:
    """B11."""
    data = text(size)
    await bus.publish(request(bus, "r1", data=data))
    (recorded,) = await bus.history("r1")
    assert bool(recorded.event.dataref) == bool(stored_chunks)
    assert await bus.fetch_data(recorded.event) == data
    assert await chunks(bus) == stored_chunks
    if stored_chunks:
        assert recorded.event.dataref == "sha256:" + hashlib.sha256(data).hexdigest()
        assert bytes(recorded.event.data) == b"null"
    (delivery,) = await take(await models(bus))
    assert await bus.fetch_data(delivery.event) == data


@pytest.mark.parametrize("size", [CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1, LIMIT])
async def test_a_blob_of_any_number_of_chunks_comes_back_whole(bus: Bus, size: int) -> None:
    """B11."""
    data = text(size)
    await bus.publish(request(bus, "r1", data=data))
    (recorded,) = await bus.history("r1")
    assert await bus.fetch_data(recorded.event) == data
    assert await chunks(bus) == -(-size // CHUNK_BYTES)


async def test_over_the_blob_limit_the_producer_is_told_item_and_size_and_nothing_is_stored(bus: Bus) -> None:
    """B11."""
    event = request(bus, "r1", data=text(LIMIT + 1))
    with pytest.raises(PayloadTooLarge) as caught:
        await bus.publish(event)
    assert (caught.value.size, caught.value.limit) == (LIMIT + 1, LIMIT)
    assert event.subject in str(caught.value)
    assert await chunks(bus) == 0
    assert await bus.history("r1") == []


async def test_the_same_data_in_many_events_and_processes_is_stored_once(url: str, open_bus: Open) -> None:
    one, two = await open_bus(url), await open_bus(url)
    data = text(CHUNK_BYTES + 100)
    for number in range(5):
        for bus in (one, two):
            await bus.publish(request(bus, f"r{number}-{id(bus)}", data=data))
    assert await chunks(one) == 2


def with_image(text: str, image: bytes = IMAGE, times: int = 1) -> bytes:
    """A task with an image, as a worker would write it."""
    return msgspec.json.encode({"text": text, "images": [f"data:image/png;base64,{image.decode()}"] * times})


async def test_an_image_amid_other_data_is_stored_once_whoever_stores_it(url: str, open_bus: Open) -> None:
    """In different texts, at different places, twice in one task, and over several chunks."""
    one, two = await open_bus(url), await open_bus(url)
    tasks = [with_image("x" * number, times=1 + number % 2) for number in range(6)]
    for number, task in enumerate(tasks):
        await (one, two)[number % 2].publish(request(one, f"r{number}", data=task))
    for number, task in enumerate(tasks):
        (recorded,) = await two.history(f"r{number}")
        assert await two.fetch_data(recorded.event) == task
        assert recorded.event.dataref == "sha256:" + hashlib.sha256(task).hexdigest()
    found = (await stored_blobs(one)).values()
    assert max(blob.size for blob in found) == len(IMAGE) + len("data:image/png;base64,")
    assert sum(blob.size for blob in found) < len(IMAGE) + 1_000
    assert len(found) == len(tasks) + 1


async def test_data_of_any_strings_comes_back_byte_for_byte(url: str, open_bus: Open) -> None:
    """Stored by one process and read by another, some of its parts known before."""
    one, two, chance = await open_bus(url), await open_bus(url), random.Random(7)
    units = ["x", '"', "\\", "\n", "é", 'some text, \\n and "quotes" ']
    strings = [chance.choice(units) * chance.choice([1, 900, PART_BYTES, CHUNK_BYTES // 8]) for _ in range(12)]
    for _ in range(25):
        values = chance.choices([*strings, 7, None, [1, 2] * PART_BYTES], k=chance.randrange(1, 6))
        data = msgspec.json.format(msgspec.json.encode(values), indent=chance.choice([-1, 2]))
        assert await two.fetch_blob(await one.store_blob(data)) == data


async def test_what_was_stored_whole_before_is_read_and_stored_in_parts_beside_it(bus: Bus) -> None:
    """Logs of earlier versions."""
    data = with_image("old")
    digest = hashlib.sha256(data).hexdigest()
    halves = data[: len(data) // 2], data[len(data) // 2 :]
    for number, half in enumerate(halves):
        await bus._connection.request(bus.subjects.blob(digest, "2", number), half)
    assert await bus.fetch_blob(f"sha256:{digest}") == data
    assert await bus.store_blob(data) == f"sha256:{digest}"
    assert await bus.fetch_blob(f"sha256:{digest}") == data


async def test_a_part_that_is_gone_is_an_error_and_storing_the_data_again_heals_it(url: str, open_bus: Open) -> None:
    one, two = await open_bus(url), await open_bus(url)
    data = with_image("task")
    reference = await one.store_blob(data)
    ((image, _),) = [each for each in (await stored_blobs(one)).items() if each[1].size > 1_000]
    purge = {"filter": one.subjects.blob(image.removeprefix("sha256:"), "2", 1)}
    await one._connection.api(f"STREAM.PURGE.{one.subjects.blob_stream}", purge, dict)
    with pytest.raises(BlobLost, match=reference):
        await two.fetch_blob(reference)
    await two.store_blob(data)
    assert await one.fetch_blob(reference) == data


async def test_a_store_that_was_cut_off_is_completed_by_the_next_one(bus: Bus) -> None:
    """B11: a reference always resolves."""
    data = text(3 * CHUNK_BYTES)
    digest = hashlib.sha256(data).hexdigest()
    first = data[:CHUNK_BYTES]
    bus._connection.send(bus.subjects.blob(digest, "3", 0).encode(), b"", first)
    await bus.publish(request(bus, "r1", data=data))
    (recorded,) = await bus.history("r1")
    assert await bus.fetch_data(recorded.event) == data


async def test_publishing_a_large_event_again_is_a_success(bus: Bus) -> None:
    """B2."""
    event = request(bus, "r1", data=text(INLINE * 3))
    assert await bus.publish(event) == await bus.publish(event)


async def test_a_blob_that_is_gone_or_not_whole_is_an_error_that_names_it(bus: Bus) -> None:
    data = text(2 * CHUNK_BYTES)
    await bus.publish(request(bus, "r1", data=data))
    (recorded,) = await bus.history("r1")
    digest = recorded.event.dataref.removeprefix("sha256:")
    stream = bus.subjects.blob_stream
    purge = {"filter": bus.subjects.blob(digest, "2", 1)}
    await bus._connection.api(f"STREAM.PURGE.{stream}", purge, dict)
    with pytest.raises(BlobLost, match=digest):
        await bus.fetch_data(recorded.event)

"""R5: an event of an older version is read through a named upcast, and fields that nobody knows survive."""

from pathlib import Path

import msgspec
import pytest

from contracts.codec import decode, encode
from contracts.errors import InvalidEvent, NewerVersion
from contracts.events import Event
from contracts.upcast import UPCASTS, Fields, version_of
from replay.file_source import FileSource
from tests.unit.replay.recorder import START

TYPE = "paint.replied"


def rename_colour_v1_v2(fields: Fields) -> Fields:
    """`color` was renamed."""
    return {"colour" if name == "color" else name: value for name, value in fields.items()}


def list_colours_v2_v3(fields: Fields) -> Fields:
    """There may be several."""
    colour = fields.pop("colour")
    return {**fields, "colours": msgspec.Raw(b"[" + bytes(colour) + b"]")}


@pytest.fixture(autouse=True)
def two_upcasts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A type whose form has changed twice."""
    monkeypatch.setitem(UPCASTS, TYPE, (rename_colour_v1_v2, list_colours_v2_v3))


def raw(version: str, data: bytes, dataref: str = "") -> bytes:
    event = Event(
        id="e1",
        source="t",
        type=TYPE,
        time=START,
        subject="jetgym.0.reply.w.r1-0.m_0",
        rolloutid="r1-0",
        dataschema=version,
        data=msgspec.Raw(data),
        dataref=dataref,
    )
    return encode(event)


@pytest.mark.parametrize(
    ("version", "data", "read"),
    [
        ("1", {"color": "red", "unknown": [1]}, {"colours": ["red"], "unknown": [1]}),
        ("1.4", {"color": "red"}, {"colours": ["red"]}),
        ("2", {"colour": "red", "unknown": None}, {"colours": ["red"], "unknown": None}),
        ("3", {"colours": []}, {"colours": []}),
    ],
)
def test_r5_data_of_each_version_is_read_in_the_present_form(
    version: str, data: dict[str, object], read: dict[str, object]
) -> None:
    assert msgspec.json.decode(decode(raw(version, msgspec.json.encode(data))).data) == read


def test_r5_data_of_a_version_after_these_is_refused() -> None:
    with pytest.raises(NewerVersion, match="has data version 4, this version reads up to 3"):
        decode(raw("4", b"{}"))
    assert (version_of(TYPE), version_of("model.replied")) == (3, 1)


def test_r5_data_that_has_no_fields_to_upcast_is_refused() -> None:
    with pytest.raises(InvalidEvent, match="is no object"):
        decode(raw("1", b"[1]"))


async def test_r5_what_is_stored_stays_as_it_was_and_a_blob_is_upcast_too(tmp_path: Path) -> None:
    inline = raw("1", b'{"color":"red"}')[:-1] + b',"later":1}'
    referring = raw("1", b"null", dataref="sha256:abc")
    path = tmp_path / "old.jsonl"
    path.write_bytes(b"\n".join([inline, b'{"blob":"sha256:abc","data":{"color":"blue"}}', referring]))
    source = FileSource([path])
    one, other = await source.history("r1-0")
    assert (one.raw, other.raw) == (inline, referring)
    assert await source.data(one.event) == b'{"colours":["red"]}'
    assert await source.data(other.event) == b'{"colours":["blue"]}'

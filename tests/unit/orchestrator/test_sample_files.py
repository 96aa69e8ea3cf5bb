"""Exported samples read back as they were, in each format, alone or packed into rows."""

import json
import random
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.samples import Sample, build_samples
from orchestrator.errors import UsageError
from orchestrator.sample_files import Format, _Npz, writer
from orchestrator.sample_rows import OPEN_ROWS, Packer, Row, Scored, sample_row
from tests.unit.contracts.conversations import Conversations, capture

SCORED = Scored(
    run_id="run",
    agent="solver",
    group="run-00003",
    task_index=3,
    rollout_index=1,
    reward=0.1,
    reward_components='{"style":0.1}',
)
ARRAYS = ("tokens", "mask", "logprobs", "versions")


def sample(name: str, length: int = 5) -> Sample:
    """A sample of so many tokens, of which the last two are trained on."""
    rollout = Conversations(name)
    rollout.call("m_0", ["q"], ["a"], capture(range(10, 8 + length), [7, 8]))
    (found,) = build_samples(rollout.events).samples
    assert len(found.tokens) == length
    return found


def read(files: list[Path]) -> list[dict[str, Any]]:
    """The rows of files, whichever format they have."""
    rows: list[dict[str, Any]] = []
    for path in files:
        if path.suffix == ".jsonl":
            rows += [json.loads(line) for line in path.read_text().splitlines()]
        elif path.suffix == ".parquet":
            rows += pytest.importorskip("pyarrow.parquet").read_table(path).to_pylist()
        else:
            with np.load(path, allow_pickle=False) as found:
                columns = dict(found)
            names = [name for name in columns if not name.endswith("_offsets")]
            count = len(next(columns[f"{name}_offsets"] for name in names if f"{name}_offsets" in columns)) - 1
            for number in range(count):
                rows.append({name: value_of(columns, name, number) for name in names})
    return rows


def value_of(columns: dict[str, Any], name: str, number: int) -> Any:
    offsets = columns.get(f"{name}_offsets")
    if offsets is None:
        return columns[name][number].item()
    return columns[name][offsets[number] : offsets[number + 1]].tolist()


def plain(row: Row) -> dict[str, Any]:
    return {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in row.items()}


@pytest.mark.parametrize("form", get_args(Format))
@pytest.mark.parametrize("packed", [False, True])
def test_rows_read_back_as_they_were(tmp_path: Path, form: Format, packed: bool) -> None:
    if form == "parquet":
        pytest.importorskip("pyarrow")
    packer = Packer(12)
    rows: list[Row] = []
    for name, length in (("r-0", 5), ("r-1", 6), ("r-2", 4)):
        rows += packer.add(sample(name, length), SCORED) if packed else [sample_row(sample(name, length), SCORED)]
    rows += packer.rest()
    with writer(tmp_path, form) as into:
        for row in rows:
            into.add(row)
    assert read(into.files) == [plain(row) for row in rows]
    assert sorted(tmp_path.iterdir()) == into.files


def test_a_sample_row_has_all_of_the_sample_and_of_its_rollouts_score() -> None:
    found = sample("r-0")
    row = sample_row(found, SCORED)
    assert all(row[name] is getattr(found, name) for name in ARRAYS)
    assert (row["reward"], row["group"], row["rollout_id"], row["calls"]) == (0.1, "run-00003", "r-0", ["m_0"])
    assert row["turns"].tolist() == [3, 5]


@given(st.integers(0, 2**32), st.integers(4, 40), st.integers(0, 200))
def test_packing_splits_and_cuts_nothing_and_names_what_is_too_long(seed: int, length: int, count: int) -> None:
    chance = random.Random(seed)
    samples = [sample(f"r-{number}", chance.randint(3, 30)) for number in range(count)]
    packer = Packer(length)
    rows: list[Row] = []
    for each in samples:
        rows += packer.add(each, SCORED)
        assert len(packer._open) <= OPEN_ROWS
    rows += packer.rest()
    found: dict[str, list[list[Any]]] = {}
    for row in rows:
        assert row["boundaries"][-1] == len(row["tokens"]) <= length
        for place, name in enumerate(row["rollout_id"]):
            start, end = row["boundaries"][place : place + 2]
            assert row["position_ids"][start:end].tolist() == list(range(end - start))
            assert name not in found
            found[name] = [row[array][start:end].tolist() for array in ARRAYS]
    fitting = [each for each in samples if len(each.tokens) <= length]
    assert found == {each.rollout_id: [getattr(each, name).tolist() for name in ARRAYS] for each in fitting}
    assert packer.too_long == [f"{each.rollout_id}/0" for each in samples if len(each.tokens) > length]


def test_rows_are_well_filled() -> None:
    chance = random.Random(1)
    packer = Packer(64)
    rows = [row for n in range(400) for row in packer.add(sample(f"r-{n}", chance.randint(3, 30)), SCORED)]
    assert sum(len(row["tokens"]) for row in rows) / (64 * len(rows)) > 0.9


def test_many_rows_are_several_files_of_bounded_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orchestrator.sample_files.SHARD_BYTES", 200)
    rows = [sample_row(sample(f"r-{number}"), SCORED) for number in range(7)]
    with _Npz(tmp_path) as into:
        for row in rows:
            into.add(row)
    assert [path.name for path in into.files] == [f"samples-0000{number}.npz" for number in range(len(into.files))]
    assert len(into.files) > 2
    assert read(into.files) == [plain(row) for row in rows]


@pytest.mark.parametrize("form", get_args(Format))
def test_what_is_interrupted_leaves_no_file_that_looks_whole(tmp_path: Path, form: Format) -> None:
    if form == "parquet":
        pytest.importorskip("pyarrow")

    def interrupted() -> None:
        with writer(tmp_path, form) as into:
            into.add(sample_row(sample("r-0"), SCORED))
            raise ValueError("interrupted")

    with pytest.raises(ValueError, match="interrupted"):
        interrupted()
    assert list(tmp_path.iterdir()) == []


def test_parquet_without_pyarrow_is_refused_with_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(UsageError, match="pip install pyarrow"):
        writer(tmp_path, "parquet")

"""How do rows of samples get into files that trainers and notebooks read?

`samples.jsonl`; `samples-00000.npz`, …; or `samples.parquet`. All hold the same columns. A file has its name only once
it is whole. Called by `export`.
"""

from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Literal, Protocol, Self

import msgspec
import numpy as np
import numpy.typing as npt

from orchestrator.errors import UsageError
from orchestrator.sample_rows import Row

Format = Literal["npz", "parquet", "jsonl"]

SHARD_BYTES: Final = 256 * 1024 * 1024
"""Bytes of arrays that are gathered for one `.npz` file, or one row group of Parquet."""


class RowWriter(Protocol):
    """Takes rows, makes files of them."""

    files: list[Path]
    """Those that are whole."""

    def __enter__(self) -> Self:
        """Begins."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Completes the files, or after an error leaves none that is not whole."""

    def add(self, row: Row) -> None:
        """Writes one row."""


def writer(folder: Path, form: Format) -> RowWriter:
    """The writer of a format; raises `UsageError` where a package is missing."""
    if form == "jsonl":
        return _Jsonl(folder / "samples.jsonl")
    if form == "parquet":
        return _Parquet(folder / "samples.parquet")
    return _Npz(folder)


class _Jsonl:
    def __init__(self, path: Path) -> None:
        self.files: list[Path] = []
        self._path, self._part = path, path.with_name(f"{path.name}.part")

    def __enter__(self) -> Self:
        self._file = self._part.open("wb")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()
        _complete(self, self._part, self._path, kept=error is None)

    def add(self, row: Row) -> None:
        lists = {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in row.items()}
        self._file.write(msgspec.json.encode(lists) + b"\n")


class _Shards:
    """Gathers rows until there are enough for one write."""

    def __init__(self, write: Callable[[Sequence[Row]], None]) -> None:
        self._rows: list[Row] = []
        self._bytes = 0
        self._write = write

    def add(self, row: Row) -> None:
        self._rows.append(row)
        self._bytes += sum(value.nbytes for value in row.values() if isinstance(value, np.ndarray))
        if self._bytes >= SHARD_BYTES:
            self.flush()

    def flush(self) -> None:
        if self._rows:
            self._write(self._rows)
        self._rows, self._bytes = [], 0


class _Npz:
    def __init__(self, folder: Path) -> None:
        self.files: list[Path] = []
        self._folder = folder
        self._shards = _Shards(self._write)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self._shards.flush()

    def add(self, row: Row) -> None:
        self._shards.add(row)

    def _write(self, rows: Sequence[Row]) -> None:
        path = self._folder / f"samples-{len(self.files):05d}.npz"
        part = path.with_name(f"{path.name}.part")
        try:
            with part.open("wb") as file:
                np.savez(file, allow_pickle=False, **columns(rows))
        except BaseException:
            part.unlink(missing_ok=True)
            raise
        _complete(self, part, path, kept=True)


def columns(rows: Sequence[Row]) -> dict[str, npt.NDArray[Any]]:
    """The rows by column; what has several values a row in one array, those of row i from `<column>_offsets[i]` on."""
    found: dict[str, npt.NDArray[Any]] = {}
    for name, first in rows[0].items():
        values = [row[name] for row in rows]
        if not isinstance(first, np.ndarray | list):
            found[name] = np.array(values)
            continue
        offsets = np.concatenate(([0], np.cumsum([len(value) for value in values])))
        found[f"{name}_offsets"] = offsets.astype(np.int64)
        found[name] = np.concatenate([np.asarray(value) for value in values])
    return found


class _Parquet:
    def __init__(self, path: Path) -> None:
        try:
            self._arrow: Any = import_module("pyarrow")
            self._parquet: Any = import_module("pyarrow.parquet")
        except ImportError:
            raise UsageError(
                "--format parquet needs the package pyarrow: pip install pyarrow (or take npz or jsonl)"
            ) from None
        self.files: list[Path] = []
        self._path, self._part = path, path.with_name(f"{path.name}.part")
        self._file: Any = None
        self._shards = _Shards(self._write)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self._shards.flush()
        if self._file is not None:
            self._file.close()
            _complete(self, self._part, self._path, kept=error is None)

    def add(self, row: Row) -> None:
        self._shards.add(row)

    def _write(self, rows: Sequence[Row]) -> None:
        arrays = {name: self._column([row[name] for row in rows]) for name in rows[0]}
        table = self._arrow.table(arrays)
        if self._file is None:
            self._file = self._parquet.ParquetWriter(self._part, table.schema)
        self._file.write_table(table)

    def _column(self, values: Sequence[Any]) -> Any:
        if not isinstance(values[0], np.ndarray):
            return self._arrow.array(values)
        offsets = np.concatenate(([0], np.cumsum([len(value) for value in values])))
        return self._arrow.LargeListArray.from_arrays(offsets.astype(np.int64), np.concatenate(values))


def _complete(into: RowWriter, part: Path, path: Path, *, kept: bool) -> None:
    """Gives a file its name, or takes it away."""
    if kept:
        part.replace(path)
        into.files.append(path)
    else:
        part.unlink(missing_ok=True)

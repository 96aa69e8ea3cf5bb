"""Where are the runs on this machine, and which of them is meant?

What is in a run's directory, `bus.run_folder` says. Called by `opening` and by `list --runs`. It reads small files and
starts nothing.
"""

from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml
from pydantic import ValidationError

from bus import LogConfig
from bus.opening import recorded
from bus.run_folder import CONFIG, FORKS, IMPORTED, LIVE, LOG, MATERIALIZED, METRICS, live, noted, run_id
from replay.errors import NoSource
from replay.names import LAST, one_of


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """The directory of a run, or of a deployment that others ran on."""

    path: Path
    run_id: str
    """The directory's name where it is no run's."""
    started: datetime
    """When its inputs were written; a trainer's, when it was started last; a noted one's, its first request."""
    noted: bool = False
    """Whether it is in the log of this directory without being its run: it was imported, or forked there."""

    @property
    def store(self) -> Path | None:
        """The directory of the run's own server; None where the log is elsewhere."""
        found = self.path / LOG
        return found if found.is_dir() else None

    @property
    def only(self) -> str | None:
        """The ID of the run that is meant of those in the log; None if all are: the directory is a deployment's.

        Others may be in the log of a run's own server too: forks, and whatever was asked for at its URL.
        """
        own = any((self.path / name).is_file() for name in (MATERIALIZED, METRICS))
        return self.run_id if self.noted or own else None


def place(path: Path) -> Place | None:
    """This directory, if there is something to read in it, else None."""
    marks = [path / name for name in (MATERIALIZED, CONFIG, LOG)]
    if (mark := next((mark for mark in marks if mark.exists()), None)) is None:
        return None
    return Place(path=path, run_id=_run_id(path), started=datetime.fromtimestamp(mark.stat().st_mtime, UTC))


def places(results: Path, beside: Path | None = None) -> list[Place]:
    """The runs below a directory and in one beside it, the newest first, those of trainers that had a deployment too.

    A start that failed before it asked for a rollout is none, and neither is a deployment that others ran on. Of a run
    that was imported too, the first directory counts: its own, and of forks the one in whose log they were made.
    """
    found = [run for folder in _with(results, beside, MATERIALIZED, METRICS) if (run := place(folder)) is not None]
    known = {run.run_id for run in found}
    for path in _with(results, beside, FORKS, IMPORTED):
        runs = {run.run_id: run for run in noted(path, _Noted) if run.run_id not in known}
        known.update(runs)
        found += [Place(path=path, run_id=run.run_id, started=run.started, noted=True) for run in runs.values()]
    return sorted(found, key=lambda run: run.started, reverse=True)


def _with(results: Path, beside: Path | None, *names: str) -> Iterator[Path]:
    """The directories that have a file of one of these names, those with the first name first, each once."""
    folders = {folder.resolve(): folder for folder in (*sorted(results.glob("*")), *([beside] if beside else []))}
    with_name = (folder for name in names for folder in folders.values() if (folder / name).exists())
    yield from dict.fromkeys(with_name)


def live_deployments(results: Path) -> list[Path]:
    """Directories of what `jetgym up` keeps running, below a directory: what runs there may be no run of `places`."""
    folders = (path.parent for path in sorted(results.glob(f"*/{LIVE}")) if live(path.parent))
    return [folder for folder in folders if not any((folder / name).exists() for name in (MATERIALIZED, METRICS))]


def deployments(results: Path) -> list[Place]:
    """What `jetgym up` keeps running, or kept, below a directory, the newest first: others ran there, trainers too."""
    named = (
        folder for folder in _logs_alone(results) if folder.run_id.startswith("d") or live(folder.path) is not None
    )
    return sorted(named, key=lambda folder: folder.started, reverse=True)


def deployment_before(run: Place) -> Place | None:
    """Of the deployments beside the directory of a run, that which was started last before the run: it may be of it."""
    before = [folder for folder in _logs_alone(run.path.parent) if folder.started <= run.started]
    return max(before, key=lambda folder: folder.started, default=None)


def _logs_alone(results: Path) -> Iterator[Place]:
    """Directories with a log that are those of no run."""
    for log in results.glob(f"*/{LOG}"):
        found = place(log.parent)
        if found is not None and not any((log.parent / name).exists() for name in (MATERIALIZED, METRICS, IMPORTED)):
            yield found


def live_at(results: Path, url: str) -> Path | None:
    """The directory, below a directory, of the server that is live at this URL; None where that is elsewhere."""
    folders = (path.parent for path in sorted(results.glob(f"*/{LIVE}")) if (path.parent / LOG).is_dir())
    return next((folder for folder in folders if (live(folder) or {}).get("url") == url), None)


def find_place(results: Path, name: str | None) -> Place:
    """The run that is meant: its directory, its ID or a unique beginning of it, or the newest. Raises `ReplayError`."""
    if name is not None and (found := place(Path(name))) is not None:
        return found
    if name is not None and "/" in name:
        raise NoSource(f"{name} is no run's directory: it holds neither a log nor a config.yaml")
    runs, others = places(results), deployments(results)
    if not runs and (not others or name in (None, LAST)):
        ways = f"--run {others[0].path} has what ran there" if others else "start one with `jetgym run`"
        raise NoSource(f"there is no run in {results}/: {ways}, or name a log with --url or a file with --file")
    if name is None or name == LAST:
        return runs[0]
    if (folder := place(results / name)) is not None:
        return folder
    known = {run.run_id: run for run in (*others, *runs)}
    return known[one_of(list(known), name, "run")]


def _run_id(path: Path) -> str:
    with suppress(OSError):
        if (found := run_id(path)) is not None:
            return found
    with suppress(OSError, msgspec.DecodeError, UnicodeDecodeError):
        return _METRICS.decode((path / METRICS).read_bytes()).run.run_id
    return path.name


class _Noted(msgspec.Struct):
    run_id: str
    started: datetime


class _Run(msgspec.Struct):
    run_id: str


class _Metrics(msgspec.Struct):
    run: _Run


_METRICS: Final = msgspec.json.Decoder(_Metrics)


def live_url(run: Place) -> str | None:
    """The URL of the server of a run that is live now, or None."""
    return (live(run.path) or {}).get("url")


def read_config(path: Path) -> dict[str, Any]:
    """A resolved config; raises `NoSource`."""
    try:
        found = yaml.safe_load(path.read_text())
    except OSError as error:
        raise NoSource(f"{path} cannot be read: {error.strerror}") from error
    except (UnicodeDecodeError, yaml.YAMLError) as error:
        raise NoSource(f"{path} is no YAML: {' '.join(str(error).split())}") from error
    if not isinstance(found, dict):
        raise NoSource(f"{path} holds no configuration")
    return found


def log_of(run: Place) -> LogConfig:
    """How the log was made, as the run's resolved config says it; raises `NoSource`, `NoLog`."""
    try:
        return LogConfig.of_record(recorded(run.path, "log"))
    except ValidationError as error:
        raise NoSource(f"{run.path / CONFIG}: its `log` section is wrong: {error}") from error

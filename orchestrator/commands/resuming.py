"""Which run does `--resume` go on with, and are its files what its log says?

The log is the truth: of a file that is damaged, cut or gone everything comes from it, and a person is told. What the
log does not bear out is refused, since going on would run all of it again. Called by the `run` command, and by
`rebuild` to keep a file aside.
"""

from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from filecmp import cmp
from pathlib import Path

from bus import Bus
from bus.errors import NoLog
from bus.opening import open_log
from bus.reboot import begin_anew
from bus.run_folder import CONFIG, LOG, MATERIALIZED, run_id
from orchestrator.asked import beginning, digest_of, is_of
from orchestrator.changes import check_log
from orchestrator.commands.common import console
from orchestrator.commands.logs import runs_of
from orchestrator.config import Config
from orchestrator.errors import UsageError
from orchestrator.hints import counted
from orchestrator.kept import Kept, by_ends, kept_of
from orchestrator.launch import Deployment
from orchestrator.run_files import write_whole
from orchestrator.tasks import other_inputs


async def resumed_run(config: Config, folder: Path) -> str:
    """The ID of the run in a directory, by its files or by its log; raises `UsageError` where there is none."""
    try:
        check_log(folder, config.redacted())
    except NoLog as error:
        raise UsageError(f"{error}. Move it away: it is written anew from the config that this command names") from None
    if (found := run_id(folder)) is not None:
        return found
    none = f"{folder} holds no run to resume"
    if not any((folder / name).exists() for name in (MATERIALIZED, CONFIG, LOG)):
        raise UsageError(f"{none}: none has begun in it. Leave --resume out to begin it")
    try:
        async with _log_of(config, folder) as bus:
            runs = await runs_of(bus)
    except NoLog:
        runs = []
    if len(runs) == 1:
        return runs[0]
    if runs:
        raise UsageError(
            f"no file in {folder} says which run it holds, and its log has {len(runs)}: `jetgym rebuild {folder} --run "
            f"ID` writes them anew ({', '.join(runs)})"
        )
    if (folder / MATERIALIZED).exists():
        raise UsageError(f"{none}: {MATERIALIZED} is damaged, and its log has none. Name another --output to begin one")
    raise UsageError(f"{none}: its log has none. Leave --resume out to begin it")


async def mend_inputs(config: Config, folder: Path, run: str, lines: Callable[[], Iterable[bytes]]) -> None:
    """Writes `materialized_inputs.jsonl` anew where it is damaged; `lines` are what would be sent now.

    Raises `UsageError` where the run began with other tasks.
    """
    path = folder / MATERIALIZED
    if (other := other_inputs(path, lines())) is None:
        return
    try:
        async with _log_of(config, folder) as bus:
            started = await beginning(bus, run)
    except NoLog:
        started = None
    if started is None:
        raise UsageError(f"{other}, and its log does not hold the run: name another --output to begin a new one")
    if is_of(started, lines()):
        console.print(f"{path} was not whole: it is written anew", markup=False, soft_wrap=True)
        write_whole(path, lines())
    elif digest_of(path) == started.inputs_sha256:
        raise UsageError(f"{other}. Start a new run, or undo the change")
    else:
        raise UsageError(
            f"the tasks, the repeats, the agent or its tools have changed since the run began, and {path} is damaged: "
            f"`jetgym rebuild {folder}` writes it anew, and then --resume says what has changed"
        )


async def check_results(run: str, folder: Path, deployment: Deployment) -> None:
    """In another log all would run again; and the files are written anew from the log, so its results would be lost.

    A log that holds the run, and not all that ended, has lost its end: those rollouts run again, and what the files
    say of them is kept aside. A run of which neither its own log nor the files have anything begins anew. To be called
    before the workers start, whose ends would hide which were lost.
    """
    holds = await deployment.holds(run)
    found = await kept_of(deployment.bus, run, folder, by_ends if deployment.rebooted else None)
    if (folder / CONFIG).is_file() and not holds:
        if deployment.config.settings.server.url is not None or any(kept.lost or kept.damaged for kept in found):
            raise UsageError(
                f"the log at {deployment.config.redactor.text(deployment.url)} does not hold the run in {folder}: it "
                f"is another log than the run's (url, log.namespace), or the run was pruned or its log deleted. Resume "
                f"with the run's own log, or start a new run"
            )
        console.print(
            f"the log does not hold the run in {folder}, as after a power cut soon after it began (log.durability), "
            f"and no result is lost: it begins anew",
            markup=False,
            soft_wrap=True,
        )
    for kept in found:
        if kept.lost and not holds:
            raise UsageError(
                f"{folder} holds the result of {kept.lost[0]}, the log does not: it is another log than the run's "
                f"(url, log.namespace), or it was deleted. Resume with the run's own log, or start a new run"
            )
        keep_aside(kept, "these rollouts run again")
        if kept.damaged:
            told = f"{counted(kept.damaged, 'damaged line')}: it is written anew from the log"
            console.print(f"{kept.path} has {told}", markup=False, soft_wrap=True)
    own = deployment.config.settings.server.url is None
    if own and not deployment.rebooted and any(kept.lost for kept in found):
        await begin_anew(deployment.bus)  # its pools may count as done what is lost, and no other start tells


def keep_aside(kept: Kept, then: str) -> None:
    """Copies a file of results that has more than the log, and tells it, and what happens `then`; raises `OSError`.

    What was kept before stays: after a second power cut it is the only copy of what the first one took.
    """
    told = []
    if kept.lost:
        lost = counted(len(kept.lost), "result")
        told.append(
            f"the log has lost its end, as in a power cut (log.durability), and with it {lost} of {kept.path}: {then}"
        )
    if kept.unread:
        unread = counted(len(kept.unread), "result")
        told.append(
            f"the log has lost large data, as in a power cut (log.durability), which {unread} of {kept.path} had: they "
            f"are not in it any more"
        )
    if told:
        told.append(f"The file as it was is {_copied_aside(kept.path)}")
        console.print(". ".join(told), markup=False, soft_wrap=True)


def _copied_aside(path: Path) -> Path:
    """The copy of a file beside it: the first of `NAME.before`, `NAME.before.2`, … that is free, or equal."""
    number, aside = 1, path.with_name(f"{path.name}.before")
    while aside.exists():
        if cmp(path, aside, shallow=False):
            return aside
        number += 1
        aside = path.with_name(f"{path.name}.before.{number}")
    with path.open("rb") as lines:
        write_whole(aside, lines)
    return aside


@asynccontextmanager
async def _log_of(config: Config, folder: Path) -> AsyncIterator[Bus]:
    """The log that the run would go on in, served for a moment where it is at rest; raises as `open_log`."""
    where = config.settings.server.url or folder / LOG
    if isinstance(where, Path) and not where.is_dir():
        raise NoLog(f"{folder} has no {LOG}/")
    async with open_log(where, config.settings.log.namespace, name="orchestrator") as bus:
        yield bus

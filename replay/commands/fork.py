"""`replay fork`: a new rollout that shares the history of another one before an event, and goes on live."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from secrets import token_hex
from typing import Annotated, NamedTuple, get_args

import msgspec
import typer
from rich.text import Text

from bus import Bus, LogConfig
from bus.opening import url_of
from bus.room import unless_full
from bus.run_folder import CONFIG, RESULTS
from contracts.events import Kind
from replay.apart import DEADLINE_S
from replay.bulk import Bulk
from replay.commands.common import (
    Deadline,
    Files,
    Json,
    Namespace,
    Run,
    Url,
    console,
    errors,
    run_async,
    use_own_components,
    where,
    write_json,
)
from replay.commands.forking import (
    Agent,
    Asks,
    At,
    Drop,
    Fields,
    Model,
    Rollout,
    Seed,
    SetReply,
    asks,
    planned,
)
from replay.continuing import (
    Asked,
    asked,
    check_served,
    ended,
    new_run_id,
    own_deployment,
    while_live,
    write,
    write_results,
)
from replay.errors import CannotFork, CannotVerify, CodeLost, Misused
from replay.facts import Facts
from replay.findings import draw_departure
from replay.fork import Plan
from replay.listing import ROLLOUTS, RowTable
from replay.log_source import open_bus
from replay.opening import Where, choose, url_options
from replay.page import Page, counted, number
from replay.places import Place, live_at, live_url, log_of, read_config
from replay.rows import Row
from replay.runs import note_forks
from replay.whatif import whatif

_MOST = 1000


class ForkDocument(msgspec.Struct, frozen=True, kw_only=True):
    """One fork, as a line of JSON."""

    rollout_id: str
    run_id: str
    parent: str
    at: int
    shared: int
    """Calls that it has from its parent."""
    outcome: str
    reward: float | None
    parent_reward: float | None
    error: str
    turns: int | None
    where: str
    """Directory or URL of the log that holds it."""


class _Goal(NamedTuple):
    """Where forks are to go on: a log with workers, or a config to start a deployment with."""

    url: str = ""
    log: LogConfig = LogConfig()
    config: Path | None = None
    overrides: tuple[str, ...] = ()
    folder: Path = Path()
    home: Path | None = None
    """The directory of what is live at the URL, where that is on this machine."""

    @property
    def where(self) -> str:
        return self.url or str(self.folder)


def add_to(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("fork", no_args_is_help=True)(fork)


def fork(
    rollout: Rollout,
    *,
    at: At,
    set_reply: SetReply = None,
    edit: Fields = None,
    drop: Drop = False,
    agent: Agent = None,
    model: Model = None,
    seed: Seed = None,
    count: Annotated[int, typer.Option("-n", min=1, max=_MOST, help="So many forks of the same point.")] = 1,
    config: Annotated[
        list[str] | None,
        typer.Option(
            "--config",
            metavar="CONFIG",
            help="Go on in a deployment of its own with this config, or with this change (a=b) of the run's; may be "
            "given again.",
            show_default=False,
        ),
    ] = None,
    deadline: Deadline = DEADLINE_S,
    run: Run = None,
    url: Url = None,
    namespace: Namespace = "jetgym",
    file: Files = None,
    json: Json = False,
) -> None:
    """Makes new rollouts that share a rollout's history before N, maybe with an edited reply at N, and go on live.

    Calls that were answered before N are not made again: they are copied under
    a new rollout ID, and the agent's code is taken through them as when a
    worker adopts a rollout. The rollout itself stays as it is. Where the run's
    deployment is up, the forks go on there; else one is started for them with
    the run's config, in a directory of its own (results/f…).

    Ends with 0 if all forks end with the reward of their parent, 1 if one does
    not, 2 if they could not be made.

    \b
    replay fork last --at turn:2 -n 8
    replay fork last --at turn:1 --edit text="Let me check."
    replay fork last --at m_2 --edit output=47
    replay fork last --at turn:2 --model judge --seed 7
    replay fork last --at 0 --config ++policy.models.local_llm.temperature=0
    replay diff f1129-1612-x7k2-00003-00
    """  # noqa: D301 - the help keeps these lines as they are
    place = where(run, url, namespace, file)
    asked_for = asks(rollout, at, set_reply=set_reply, fields=edit, drop=drop, agent=agent, models=model, seed=seed)
    run_id = new_run_id()
    goal = _goal(place, rollout, config or [], run_id)
    plan, rows = run_async(_fork(place, asked_for, count, run_id, goal, deadline_s=deadline))
    for row in rows:
        if json:
            write_json(_document(plan, row, goal))
    if not json:
        _draw(plan, rows, goal)
    same = all(row.outcome == plan.parent.state and row.reward == plan.parent.first_reward for row in rows)
    raise typer.Exit(0 if same else 1)


async def _fork(
    place: Where, asked_for: Asks, count: int, run_id: str, goal: _Goal, *, deadline_s: float
) -> tuple[Plan, list[Row]]:
    override = read_config(goal.config) if goal.config is not None else None
    async with planned(place, asked_for, override, use_own_components(), deadline_s) as (plan, facts, bulk):
        await _check(plan, bulk)
    going = _go_on(goal, plan, asked(plan, run_id, count), facts)
    rows = await (going if goal.home is None else while_live(goal.home, run_id, going))
    if not goal.url:
        await write_results(goal.folder, run_id)
    return plan, rows


async def _go_on(goal: _Goal, plan: Plan, forks: list[Asked], facts: Facts) -> list[Row]:
    """Makes the forks, and waits until all have ended."""
    writer, run_id, started = f"fork-{token_hex(4)}", forks[0].request.run_id, datetime.now(UTC)
    async with _live(goal, forks, writer) as bus:
        await check_served(bus, plan.agent)
        if goal.home is not None:
            _note(goal.home, run_id, started, len(forks), [])
        with errors.status(f"waiting for {counted(len(forks), 'fork')} in {goal.where}"):
            for each in forks:
                await unless_full(bus, write(bus, plan, each, writer))
            rows = await _all_ended(bus, forks, facts)
    if goal.home is not None:
        _note(goal.home, run_id, started, len(forks), rows)
    return rows


def _note(home: Path, run_id: str, started: datetime, count: int, rows: list[Row]) -> None:
    try:
        note_forks(home, run_id, started, count, rows)
    except OSError as error:
        told = f"{home} cannot be written to ({error.strerror}): {run_id} will be found with --run {home} only"
        errors.print(told, markup=False, soft_wrap=True)


async def _check(plan: Plan, bulk: Bulk) -> None:
    """Raises `CannotFork` where the agent's code that is here departs from what would be shared, or `CodeLost`."""
    try:
        found = await whatif(plan, bulk)
    except CodeLost:
        raise
    except CannotVerify as error:
        errors.print(f"the code is not tried before: {error}", markup=False, soft_wrap=True)
        return
    if found.departure is not None:
        draw_departure(found.departure, Page(errors))
        raise CannotFork(
            f"the agent's code departs from what {plan.parent.rollout_id} did before that point, so it cannot go on "
            f"from there: fork at an earlier event"
        )


async def _all_ended(bus: Bus, forks: list[Asked], facts: Facts) -> list[Row]:
    async with asyncio.TaskGroup() as group:
        waiting = [group.create_task(ended(bus, each, facts)) for each in forks]
    return [task.result() for task in waiting]


@asynccontextmanager
async def _live(goal: _Goal, forks: list[Asked], writer: str) -> AsyncIterator[Bus]:
    def report(what: str) -> None:
        errors.print(what, style="dim")

    async with AsyncExitStack() as stack:
        if goal.url:
            yield await stack.enter_async_context(open_bus(goal.url, goal.log, writer))
        else:
            assert goal.config is not None
            started = own_deployment(goal.config, goal.overrides, goal.folder, forks, writer=writer, report=report)
            yield await stack.enter_async_context(started)


def _goal(place: Where, rollout: str, given: list[str], run_id: str) -> _Goal:
    """Where the forks go on. Raises `ReplayError`."""
    folder = place.results / run_id
    files = [Path(each) for each in given if "=" not in each]
    overrides = tuple(each for each in given if "=" in each)
    if files:
        more = tuple(map(str, files[1:]))
        return _Goal(config=files[0], overrides=(*more, *overrides), folder=folder)
    if place.files:
        raise Misused("events in a file have no deployment: name the config of one with --config CONFIG")
    if place.url is not None:
        if overrides:
            raise Misused("a deployment that runs cannot be changed: give its config too, to start another one")
        home = live_at(place.results, place.url)
        return _Goal(url=place.url, log=LogConfig(namespace=place.namespace), home=home)
    source = choose(place, rollout)
    config = source.path / CONFIG
    if not overrides and (url := _served(source)) is not None:
        home = source.path if source.store is not None else live_at(place.results, url)
        return _Goal(url=url, log=log_of(source), home=home)
    if not config.is_file():
        raise CannotFork(f"{source.path} has no {CONFIG}, so no deployment can be started: give --config CONFIG")
    if not any(isinstance(part, dict) and part.keys() & get_args(Kind) for part in read_config(config).values()):
        raise CannotFork(f"{config} has no agents, as that of an import: give --config CONFIG of a deployment")
    return _Goal(config=config, overrides=(*overrides, "~server"), folder=folder)


def _served(source: Place) -> str | None:
    """The URL of the deployment that the run's log belongs to, where that is not at rest."""
    return live_url(source) if source.store is not None else url_of(source.path)


def _document(plan: Plan, row: Row, goal: _Goal) -> ForkDocument:
    return ForkDocument(
        rollout_id=row.rollout_id,
        run_id=row.run_id,
        parent=plan.parent.rollout_id,
        at=plan.before,
        shared=len(plan.shared),
        outcome=row.outcome,
        reward=row.reward,
        parent_reward=plan.parent.first_reward,
        error=row.error,
        turns=row.turns,
        where=goal.where,
    )


def _draw(plan: Plan, rows: list[Row], goal: _Goal) -> None:
    reward = number(plan.parent.first_reward)
    at = f"before event {plan.before}" if plan.before else "from its task"
    console.print(
        Text.assemble(
            (plan.parent.rollout_id, "bold"),
            f" (reward {reward}), {at}, {counted(len(plan.shared), 'call')} shared; forks:",
        )
    )
    table = RowTable(console, None, ROLLOUTS)
    for row in rows:
        table.add(row)
    table.end()
    option = ""
    if goal.url and goal.home is None:
        option = f" {url_options(goal.url, goal.log.namespace)}"
    elif goal.home is not None and goal.home.resolve().parent != RESULTS.resolve():
        option = f" --run {goal.home}"
    console.print(f"replay show {rows[0].rollout_id}{option}", style="dim", soft_wrap=True)

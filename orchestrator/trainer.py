"""How does a trainer ask for rollouts, get them in groups, and say what it has used?

`Trainer` is the whole client: it submits tasks as far as the staleness bound allows, feeds batches of finished groups,
records what was committed, and announces policy versions. Everything it knows it reads from the log when it starts, so
it can be killed at any moment. It never looks into a rollout, and holds none: what they said stays in the log.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final, Self, Unpack

import structlog

from bus.run_folder import CONFIG, METRICS, RESULTS
from components.workers.cancellations import cancel, cancel_run
from components.workers.policies import Policies
from contracts.ids import check_name
from orchestrator.admission import Pacing
from orchestrator.asking import Asking
from orchestrator.bell import Bell
from orchestrator.cancelling import meant
from orchestrator.config import load_config
from orchestrator.consumption import Consumption
from orchestrator.delivered import Batch, Finished, Group
from orchestrator.describing import check
from orchestrator.errors import RunCancelled
from orchestrator.feed import Feed
from orchestrator.feed_records import FeedRecords
from orchestrator.feed_view import FeedView
from orchestrator.groups import Groups
from orchestrator.launch import Deployment, Report
from orchestrator.policy_versions import announce, check_version
from orchestrator.run_files import RunFiles
from orchestrator.run_log import RunLog
from orchestrator.stragglers import Stragglers
from orchestrator.submission import AnyTask, Submission
from orchestrator.trainer_options import (
    FEED,
    PATIENCE_S,
    UNFINISHED,
    FeedOptions,
    Options,
    Order,
    TrainerState,
    check_names,
    check_options,
    check_whole,
    models_of,
    said,
    told,
    write_metrics,
)

NOT_COMMITTED: Final = (
    "what was trained on at earlier versions and is not committed takes the places of all that could be asked for "
    "ahead: commit at each version"
)
_log = structlog.get_logger("trainer")


class Trainer:
    """The trainer's side of one run. Made by `connect` or `launch`."""

    def __init__(self, deployment: Deployment, run: str, options: Options, metrics: Path | None) -> None:
        self.run = run
        self.deployment, self.bus = deployment, deployment.bus
        self.models = models_of(deployment.descriptions, options.get("models"))
        self._groups, self._bell = Groups(), Bell()
        self._view = FeedView(self.bus, run, self.models, self._groups, self._bell)
        self.pacing = Pacing(options.get("groups"), options.get("max_lag"), options.get("unfinished", UNFINISHED))
        """What `connect` or `launch` was given; a feed may have other bounds."""
        self._view.pacing = self.pacing
        self._records = FeedRecords(self.bus, run, options.get("feed", FEED))
        self._consumption = Consumption(self._view, self._records)
        retry = options.get("retry", deployment.config.settings.retry)
        self._log = RunLog(self.bus, run, self._groups, retry, self._bell.ring, models=self.models)
        self._asking = Asking(self._view, Submission(run, deployment.descriptions), self._log)
        self._stragglers = Stragglers(self.bus, run, self._groups, self._bell)
        self._policies = {model: Policies(self.bus, model, self._risen) for model in self.models}
        self._tasks: set[asyncio.Task[None]] = set()
        self._metrics = metrics
        """Where they are written: at first, at each new policy version and at the end."""

    @classmethod
    @asynccontextmanager
    async def connect(
        cls,
        url: str,
        *,
        run: str,
        namespace: str | None = None,
        report: Report = said,
        **options: Unpack[Options],
    ) -> AsyncIterator[Self]:
        """A trainer on a deployment that runs elsewhere (`jetgym up`). What is deployed there, its log says.

        Args:
            url: of its NATS server.
            run: the run's name. A trainer that is started again under it goes on with what is there.
            namespace: of the deployment, where it is not `jetgym`.
            report: told when the server is away, and when it is back; by default, log lines say it.
            options: see `Options`.

        Raises:
            UsageError: nothing is deployed there, or the options do not fit it.
            TypeError, ValueError: the options are none. `InvalidName`, for the run, is one.
            BusError: the server cannot be reached.
        """
        _check(run, options)
        overrides = [] if namespace is None else [f"log.namespace={namespace}"]
        config = load_config([], overrides, flags={"server": {"url": url}})
        async with (
            Deployment.connect(url, config, report) as deployment,
            cls._open(deployment, run, options) as it,
        ):
            yield it

    @classmethod
    @asynccontextmanager
    async def launch(
        cls,
        configs: str | Path | Sequence[str | Path],
        *overrides: str,
        run: str,
        output: str | Path | None = None,
        report: Report = told,
        **options: Unpack[Options],
    ) -> AsyncIterator[Self]:
        """A trainer with a deployment of its own, which ends with it.

        Args:
            configs: files as `jetgym up` takes them.
            overrides: of the config, as on the command line.
            run: see `connect`.
            output: directory of the log and of the workers' logs, by default `results/<run>`. A trainer that is
                started again with it goes on with what is there.
            report: told what is going on; by default, log lines say it.
            options: see `Options`.

        Raises as `connect` does, `ConfigError`, `LaunchError`.
        """
        _check(run, options)
        names = [str(configs)] if isinstance(configs, str | Path) else [str(name) for name in configs]
        config = load_config(names, overrides)
        checked = await check(config, report)
        models_of(checked.descriptions, options.get("models"))
        folder = RESULTS / run if output is None else Path(output)
        async with AsyncExitStack() as stack:
            files = stack.enter_context(RunFiles(folder))
            deployment = await stack.enter_async_context(Deployment.start(checked, files, report, run))
            (folder / CONFIG).write_text(config.to_yaml(checked.descriptions))
            yield await stack.enter_async_context(cls._open(deployment, run, options, folder / METRICS))

    @classmethod
    @asynccontextmanager
    async def _open(
        cls, deployment: Deployment, run: str, options: Options, metrics: Path | None = None
    ) -> AsyncIterator[Self]:
        trainer = cls(deployment, run, options, metrics)
        await trainer._read()
        trainer._write_metrics()  # it makes the directory a run's
        trainer._keep(trainer._log.follow)
        trainer._keep(trainer._log.until_cancelled)
        trainer._keep(trainer._stragglers.watch)
        for policies in trainer._policies.values():
            trainer._keep(policies.follow)
        trainer._keep(lambda: deployment.while_alive(asyncio.Event().wait()))
        try:
            yield trainer
        finally:
            for task in trainer._tasks:
                task.cancel()
            await asyncio.gather(*trainer._tasks, return_exceptions=True)
            await trainer._consumption.close()
            trainer._write_metrics()

    async def _read(self) -> None:
        """Learns everything from the log."""
        for model, policies in self._policies.items():
            await policies.start()
            if policies.version is None:  # the weights that its engine began with, whatever others have by now
                await announce(self.bus, [model], 0)
        await self._records.read()
        await self._log.read(self._records.consumed)
        self._groups.committed_now = self._log.by_size(self._records.committed_at(self._view.version))
        self._bell.broken = await self._log.cancelled()
        if not self._records.opened:
            await self._consumption.open()

    def _keep(self, work: Callable[[], Awaitable[object]]) -> None:
        """Runs beside everything else. If it fails, so does whatever waits."""

        async def run() -> None:
            try:
                await work()
            except Exception as error:  # noqa: BLE001 - raised where the trainer waits
                self._bell.break_with(error)

        self._tasks.add(asyncio.create_task(run()))

    # Asking

    @property
    def version(self) -> int:
        """The highest policy version that was announced, by this trainer or another one of its models."""
        return self._view.version

    async def submit(
        self, tasks: Iterable[AnyTask], agent: str | None = None, *, group_size: int = 8, epoch: int = 0
    ) -> int:
        """Asks for a group of rollouts of each task; waits while the bound on unfinished work is reached.

        What was submitted before, by whichever process, adds nothing: the same task for the same agent in one epoch is
        one group, also where it stands twice among `tasks`. So a trainer that starts again submits the same as at
        first. It waits for as long as nothing is committed: run it beside the feed.

        Args:
            tasks: task lines, or their fields; an open file, and an endless iterator of ever new tasks too.
            agent: name of the agent's instance; may be left out where there is one.
            group_size: rollouts of each task. A group keeps the size that it was first asked for with.
            epoch: to ask for the same tasks once more.

        Returns:
            How many groups were new.

        Raises:
            TypeError, ValueError: `tasks`, `group_size` or `epoch` cannot be such.
            InputError: a task is none. Those before it were submitted.
            UsageError: there are no tasks, or it was not said yet how many groups `max_lag` is about. Or a task was
                submitted with another `group_size`, or an iterator only gives the same again; then those before it were
                submitted.
            RunCancelled: the run was.
            BusError: the log was away for too long; submit the same tasks again.
        """
        check_whole("group_size", group_size, 1)
        check_whole("epoch", epoch, 0)
        return await self._asking.submit(tasks, agent, group_size, epoch)

    def no_more_tasks(self) -> None:
        """Nothing more will be submitted after what is being submitted: feeds end when everything is delivered."""
        self._view.complete = True
        self._bell.ring()

    # Taking

    def feed(
        self,
        *,
        groups: int | None = None,
        rollouts: int | None = None,
        tokens: int | None = None,
        order: Order = "finish",
        max_lag: int | None = None,
        drop_zero_variance: bool = False,
        straggler_s: float | None = None,
        patience_s: float = PATIENCE_S,
    ) -> Feed:
        """Batches of finished groups: `async for batch in trainer.feed(groups=16)`.

        What was delivered and not committed does not come again in this process, but after a restart. Its options are
        the trainer's until the next feed is made.

        Args:
            groups: a batch has so many; without any size, as many as `connect` was given.
            rollouts: a batch has so many rollouts instead, each as a group of one as soon as it has ended.
            tokens: a batch has whole groups of so many generated tokens at most; one that has more comes alone.
            order: `finish`: as they finish, but that what is older can still be in time for `max_lag`; `fifo`: as they
                were asked for.
            max_lag: versions that a group may be behind at delivery, instead of what `connect` was given. What is
                staler is dropped.
            drop_zero_variance: groups without two different rewards are dropped, and the batch still fills.
            straggler_s: seconds after the first rollout of a group has ended at which the others are cancelled; where
                none has, after the first one of a group that was asked for later.
            patience_s: seconds in which something must come nearer to a batch that is awaited; `math.inf`: for ever.

        Raises `TypeError` and `ValueError` for what is no value of these, or does not fit what `connect` was given.
        """
        given = self.pacing
        chosen = FeedOptions(
            groups=given.groups if (groups, rollouts, tokens) == (None, None, None) else groups,
            rollouts=rollouts,
            tokens=tokens,
            order=order,
            max_lag=given.max_lag if max_lag is None else max_lag,
            drop_zero_variance=drop_zero_variance,
            straggler_s=straggler_s,
            patience_s=patience_s,
        )
        self._view.pacing = given.of_feed(chosen)
        self._stragglers.after_s = chosen.straggler_s
        self._bell.ring()
        return Feed(self._view, chosen, self._consumption)

    async def commit(self, batch: Batch) -> None:
        """The batch was used: it does not come again. Durable when this returns; again changes nothing.

        Raises `ValueError` for a batch of another connection, `FeedTaken` where another trainer feeds under the same
        name, and `BusError`, after which this trainer can record nothing more and has to be started again.
        """
        if not isinstance(batch, Batch):
            raise TypeError(f"a batch of the feed is committed, not {type(batch).__name__}")
        await self._consumption.commit(batch)

    # Policy versions and cancellation

    async def policy_updated(self, version: int, models: Sequence[str] | None = None) -> None:
        """The models have new weights. What is asked for from now on is of this version.

        Of several, `models` are those that have; the others keep the version that they are of, so what they generate
        grows staler with each one that leaves them out. Where that is not meant, announce it of all.

        Announcing the present version again changes nothing. Raises `ValueError` for one that is older or no version,
        and for a model that is not the trainer's, `BusError`.
        """
        check_version(version, self._view.version)
        if models is not None:
            check_names("models", models, self.models)
        await announce(self.bus, models or self.models, version)
        self._risen(version)

    def _risen(self, version: int) -> None:
        """This version was announced, here or by another trainer of these models."""
        if version > self._view.version:
            self._view.version = version
            self._groups.end_version(self._view.pacing.groups)
            if self._view.pacing.crowded(self._groups) and NOT_COMMITTED not in self._view.told:
                self._view.told.add(NOT_COMMITTED)
                _log.warning("not_committed", why=NOT_COMMITTED)
            self._write_metrics()
        self._bell.ring()

    def _write_metrics(self) -> None:
        if self._metrics is not None:
            write_metrics(self._metrics, self.state())

    @asynccontextmanager
    async def weights_changing(self, version: int) -> AsyncIterator[None]:
        """Asks for nothing while the weights change, then announces the version. What runs goes on.

        Raises as `policy_updated` does, for a version that is none before any weights change.
        """
        check_version(version, self._view.version)
        self._view.changing = True
        try:
            yield
            await self.policy_updated(version)
        finally:
            self._view.changing = False
            self._bell.ring()

    async def cancel(
        self,
        *,
        rollout: str | Finished | None = None,
        group: str | Group | None = None,
        reason: str = "cancelled by the trainer",
    ) -> None:
        """Has a rollout, a group, or without either the whole run end as cancelled. What has ended keeps its end.

        A run that was cancelled stays so: from then on `submit` and feeds raise `RunCancelled`, also of other trainers.

        Raises `ValueError` for what is no rollout and no group of this run, `BusError`.
        """
        if not isinstance(reason, str):
            raise TypeError(f"reason is a text, not {reason!r}")
        if rollout is None and group is None:
            await cancel_run(self.bus, self.run, reason)
            self._bell.break_with(RunCancelled(self.run, reason))
            return
        for name in meant(self.run, self._groups, rollout=rollout, group=group):
            await cancel(self.bus, self.run, name, reason)

    def state(self) -> TrainerState:
        """The queue and the staleness of the run so far."""
        return TrainerState(
            run_id=self.run,
            version=self._view.version,
            unfinished=self._groups.unfinished_groups,
            waiting=self._groups.waiting,
            unfinished_rollouts=self._groups.unfinished_rollouts,
            consumed=self._records.latest.rollouts,
            staleness=self._records.latest.staleness,
            untrainable=self._records.latest.untrainable,
            dropped=self._records.latest.refused,
        )


def _check(run: str, options: Options) -> None:
    """Refuses what cannot be, before anything is started or looked for."""
    check_name(run, "run")
    check_options(options)
    check_name(options.get("feed", FEED), "feed")

"""Live cells one after the other: planned, served, driven, kept; systems in turn within each seed."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from bench.cells import Failure
from bench.config import RunConfig
from bench.errors import BenchError, MissingError
from bench.files import DiskFull
from bench.live.drive import drive
from bench.live.options import LiveOptions
from bench.live.pilot import loaded, pilot
from bench.live.plan import LivePlan, live_plan
from bench.live.pool import Pool
from bench.run import Interrupted, Progress, RunResult, execute, kept
from bench.sweep import Standing, SweepProgress

Say = Callable[[str], None]
LOGS = "live"
"""Folder, in that of the results, of what servers wrote."""


def run_live(
    configs: Sequence[RunConfig], say: Say, *, force: bool = False, progress: Progress | None = None
) -> list[RunResult]:
    """Run cells, or find them; the first that fails ends it. Raises BenchError."""
    with _pool(configs[0].out, say) as pool:
        plans = [live_plan(config) for config in with_rates(configs, pool, say)]
        pool.prepare(plan for plan in plans if force or kept(plan) is None)
        return [cell(plan, pool, force=force, progress=progress) for plan in plans]


def sweep_live(
    configs: Sequence[RunConfig], say: Say, *, force: bool = False, progress: SweepProgress | None = None
) -> list[RunResult | Failure]:
    """Run every cell in the order given, or find it. A cell that fails is a Failure, the others go on, except
    on a full disk. Raises Interrupted on Ctrl-C: what is finished stays.
    """
    sweep = _Sweep(configs, say, force, progress)
    try:
        with _pool(configs[0].out, say) as pool:
            return sweep.go(pool)
    except KeyboardInterrupt:
        raise Interrupted(
            f"interrupted: {sweep.done} of {len(configs)} cells are finished and kept; "
            "the same command goes on from here"
        ) from None


def _pool(out: Path, say: Say) -> Pool:
    return Pool(out / LOGS, say)


def cell(plan: LivePlan, pool: Pool, *, force: bool = False, progress: Progress | None = None) -> RunResult:
    """One cell. Raises BenchError; an engine that died is started anew for the next one."""
    if not force and (found := kept(plan)) is not None:
        return found
    deployment = pool.get(plan)
    plan.facts = deployment.facts()
    try:
        return execute(plan, force=force, progress=progress, drive=partial(drive, deployment=deployment))
    except MissingError as error:
        if not isinstance(error, DiskFull):
            pool.drop(plan)
        raise


class _Sweep:
    """A sweep under way."""

    def __init__(
        self, configs: Sequence[RunConfig], say: Say, force: bool, progress: SweepProgress | None
    ) -> None:
        self.configs, self.say, self.force, self.progress = configs, say, force, progress
        self.outcomes: list[RunResult | Failure] = []
        self._began = time.monotonic()

    @property
    def done(self) -> int:
        """Cells that have a result."""
        return sum(isinstance(outcome, RunResult) for outcome in self.outcomes)

    def go(self, pool: Pool) -> list[RunResult | Failure]:
        """Until every cell has an outcome."""
        plans = [_planned(config, pool, self.say) for config in self.configs]
        ready = [plan for plan in plans if isinstance(plan, LivePlan)]
        pool.prepare(plan for plan in ready if self.force or kept(plan) is None)
        full = False
        for config, plan in zip(self.configs, plans, strict=True):
            outcome = self._outcome(config, plan, pool, full)
            full = full or (isinstance(outcome, Failure) and outcome.disk_full)
            self.outcomes.append(outcome)
        return self.outcomes

    def _outcome(
        self, config: RunConfig, plan: LivePlan | Failure, pool: Pool, full: bool
    ) -> RunResult | Failure:
        if isinstance(plan, Failure):
            return plan
        try:
            if full:
                raise DiskFull("not run: there is no space left for results")
            return cell(plan, pool, force=self.force, progress=self._told)
        except Interrupted:
            raise KeyboardInterrupt from None
        except BenchError as error:
            return Failure(config, error.exit_code, str(error), isinstance(error, DiskFull))

    def _told(self, done: int, total: int) -> None:
        """Programs of the cell that runs."""
        if self.progress is None:
            return
        results = [o for o in self.outcomes if isinstance(o, RunResult)]
        there, over = sum(r.cached for r in results), len(self.outcomes)
        self.progress(
            Standing(
                len(self.configs), len(results), there, over - len(results),
                over - there + done / max(1, total), len(self.configs) - over - done / max(1, total),
                time.monotonic() - self._began,
            )
        )  # fmt: skip


def with_rates(configs: Sequence[RunConfig], pool: Pool, say: Say) -> list[RunConfig]:
    """The runs with the rates that pilots tell, where none is given. Raises BenchError."""
    return [_with_rate(config, pool, say) for config in configs]


def _with_rate(config: RunConfig, pool: Pool, say: Say) -> RunConfig:
    if config.rate is not None:
        return config
    return loaded(config, pilot(config, pool, say), LiveOptions.of(config).load)


def _planned(config: RunConfig, pool: Pool, say: Say) -> LivePlan | Failure:
    try:
        return live_plan(_with_rate(config, pool, say))
    except BenchError as error:
        return Failure(config, error.exit_code, str(error))

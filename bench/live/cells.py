"""Live cells one after the other: planned, served, driven, kept; systems in turn within each seed."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from bench.cells import Failure
from bench.config import RunConfig
from bench.drivers.calls import CallFailed
from bench.errors import BenchError, InvalidRun, MissingError
from bench.files import DiskFull
from bench.live.beside import LiveCell, Pair, Predictor, others_tell, table
from bench.live.drive import drive
from bench.live.options import LiveOptions
from bench.live.pilot import Pilot, Pilots, has_load, kept_pilot, loaded, pilot_plan
from bench.live.plan import LivePlan, live_plan
from bench.live.pool import Pool
from bench.records import RunEnd
from bench.run import Interrupted, Progress, RunResult, execute, kept
from bench.sweep import Standing, SweepProgress

Say = Callable[[str], None]
MakePool = Callable[[], Pool]
UNPREDICTED = (
    "agents are not predicted: what they ask is not known before they run (record a run, and run the record)"
)
LOGS = "live"
"""Folder, in that of the results, of what servers wrote."""


@dataclass
class Swept:
    """What became of the cells, in their order; ``plans`` and ``pilots`` of those that could be planned."""

    outcomes: list[RunResult | Failure] = field(default_factory=list)
    plans: list[LivePlan | None] = field(default_factory=list)
    pilots: list[Pilot | None] = field(default_factory=list)

    @property
    def done(self) -> int:
        """Cells that have a result."""
        return sum(isinstance(outcome, RunResult) for outcome in self.outcomes)

    def beside(self, say: Say) -> tuple[list[dict[str, Any]], list[str]]:
        """Rows of measured and predicted numbers (``beside.table``), and why predictions are missing."""
        cells = [
            LiveCell(plan, outcome, found)
            for plan, outcome, found in zip(self.plans, self.outcomes, self.pilots, strict=True)
            if plan is not None
            and isinstance(outcome, RunResult)
            and "wait" not in _unknown(outcome)
            and not plan.config.agents
        ]
        predictor, pairs, notes = Predictor(cells), list[Pair](), dict[str, None]()
        if any(plan is not None and plan.config.agents for plan in self.plans):
            notes[UNPREDICTED] = None
        if cells:
            say(f"the simulator predicts {len(cells)} cells")
        for cell in cells:
            try:
                pairs.append(predictor.pair(cell))
            except BenchError as error:
                notes[f"{cell.name} is left out: {error}"] = None
        notes |= dict.fromkeys(pair.note for pair in pairs if pair.note)
        try:
            return table(pairs), list(notes)
        except BenchError as error:
            return [], [*notes, str(error)]


def _unknown(result: RunResult) -> str:
    """Why nothing is known of waits; empty where it is."""
    entry = result.summary["metrics"]["wait.wait_s"]
    return f"wait: {entry['note']}" if entry["value"] is None else ""


def run_live(
    configs: Sequence[RunConfig], say: Say, *, force: bool = False, progress: Progress | None = None,
    pool: MakePool | None = None,
) -> Swept:  # fmt: skip
    """Run cells, or find them; the first that fails ends it. Raises BenchError."""
    swept = Swept()
    with (pool or (lambda: _pool(configs[0], say)))() as up:
        pilots, needed = Pilots(up, say), pilots_needed(configs)
        up.prepare(to_serve(configs, needed, force))
        for config, asks in zip(configs, needed, strict=True):
            rated, found = with_rate(config, up, pilots if asks else None)
            swept.plans.append(plan_of(rated))
            swept.pilots.append(found)
        for plan in filter(None, swept.plans):
            swept.outcomes.append(cell(plan, up, force=force, progress=progress))
    return swept


def sweep_live(
    configs: Sequence[RunConfig], say: Say, *, force: bool = False, progress: SweepProgress | None = None,
    pool: MakePool | None = None,
) -> Swept:  # fmt: skip
    """Run every cell in the order given, or find it. A cell that fails is a Failure, the others go on, except
    on a full disk. Raises Interrupted on Ctrl-C: what is finished stays.
    """
    sweep = _Sweep(configs, say, force, progress)
    try:
        with (pool or (lambda: _pool(configs[0], say)))() as up:
            return sweep.go(up)
    except KeyboardInterrupt:
        raise Interrupted(
            f"interrupted: {sweep.swept.done} of {len(configs)} cells are finished and kept; "
            "the same command goes on from here"
        ) from None


def _pool(config: RunConfig, say: Say) -> Pool:
    return Pool(config.out / LOGS, say)


def cell(plan: LivePlan, pool: Pool, *, force: bool = False, progress: Progress | None = None) -> RunResult:
    """One cell. Raises BenchError; an engine that died, or failed a call, is started anew for the next."""
    if not force and (found := kept(plan)) is not None:
        return priced(found, plan.config)
    deployment = pool.get(plan)
    plan.facts = deployment.facts()
    try:
        made = execute(
            plan, force=force, progress=progress, drive=partial(driver_of(plan), deployment=deployment)
        )
        return priced(made, plan.config)
    except BenchError as error:
        if _engine_failed(error):
            pool.drop(plan)
        raise


def _engine_failed(error: BenchError) -> bool:
    """Whether something of the deployment is dead (MissingError), or may hang: a call of it failed."""
    if isinstance(error, MissingError):
        return not isinstance(error, DiskFull)
    return isinstance(error, InvalidRun) and isinstance(error.__cause__, CallFailed)


def plan_of(config: RunConfig) -> LivePlan:
    """The plan of a live run, of agents or of programs that are known. Raises as ``live_plan``."""
    if not config.agents:
        return live_plan(config)
    from bench.agents.plan import agent_plan  # what agents import is for them alone

    return agent_plan(config)


def driver_of(plan: LivePlan) -> Callable[..., RunEnd]:
    """Drives the plan through a deployment (``bench.live.drive.drive``)."""
    if not plan.config.agents:
        return drive
    from bench.agents.drive import drive as drive_agents

    return drive_agents


def priced(result: RunResult, config: RunConfig) -> RunResult:
    """With money beside engine-seconds, where a price was given."""
    if (price := config.price()) is None:
        return result
    from bench.agents.totals import with_price

    return with_price(result, price)


def pilots_needed(configs: Sequence[RunConfig]) -> list[bool]:
    """Whether each run needs its pilot: for its rate, or for step times that no other run here tells. Agents
    have no rate and are not predicted."""
    plans: list[LivePlan | None] = []
    for config in configs:
        plan = None
        with contextlib.suppress(BenchError):  # bad ones are told later
            plan = plan_of(config) if has_load(config) else None
        plans.append(plan)
    return [not (told or config.agents) for told, config in zip(others_tell(plans), configs, strict=True)]


def with_rate(config: RunConfig, pool: Pool, pilots: Pilots | None) -> tuple[RunConfig, Pilot | None]:
    """The run with the rate that a pilot tells, where none is given, and the pilot (``pilots`` None: it is
    not needed). Raises BenchError."""
    if not has_load(config):
        live_plan(replace(config, rate=1.0))  # what is wrong is told before anything starts
    else:
        plan_of(config)
    if pilots is None:
        return config, None
    try:
        found = pilots.of(config)
    except InvalidRun as error:
        if _engine_failed(error):
            pool.drop(pilot_plan(config))
        raise
    return loaded(config, found, LiveOptions.of(config).load), found


def to_serve(configs: Sequence[RunConfig], needed: Sequence[bool], force: bool) -> list[LivePlan]:
    """Plans, with any rate, of the cells and pilots (``needed``: whose) that are not there yet: what must be
    up. Bad ones are told later."""
    found = []
    for config, asks in zip(configs, needed, strict=True):
        with contextlib.suppress(BenchError):
            known = rate_known(config)
            plan = plan_of(known or replace(config, rate=1.0))
            if asks and kept_pilot(config) is None:
                found.append(pilot_plan(config))
            if force or known is None or kept(plan) is None:
                found.append(plan)
    return found


def rate_known(config: RunConfig) -> RunConfig | None:
    """The run with its rate, where that is known without measuring anything."""
    if has_load(config):
        return config
    found = kept_pilot(config)
    return None if found is None else loaded(config, found, LiveOptions.of(config).load)


class _Sweep:
    """A sweep under way."""

    def __init__(
        self, configs: Sequence[RunConfig], say: Say, force: bool, progress: SweepProgress | None
    ) -> None:
        self.configs, self.say, self.force, self.progress = configs, say, force, progress
        self.swept = Swept()
        self._calls: list[int] = []
        self._began = time.monotonic()

    def go(self, pool: Pool) -> Swept:
        """Until every cell has an outcome."""
        pilots, needed = Pilots(pool, self.say), pilots_needed(self.configs)
        pool.prepare(to_serve(self.configs, needed, self.force))
        planned = [
            self._planned(config, pool, pilots if asks else None)
            for config, asks in zip(self.configs, needed, strict=True)
        ]
        self.swept.plans = [plan if isinstance(plan, LivePlan) else None for plan in planned]
        self._calls = [
            0 if plan is None or self._there(plan) else plan.calls_estimate for plan in self.swept.plans
        ]
        self._began = time.monotonic()
        full = False
        for config, plan in zip(self.configs, planned, strict=True):
            outcome = self._outcome(config, plan, pool, full)
            full = full or (isinstance(outcome, Failure) and outcome.disk_full)
            self.swept.outcomes.append(outcome)
        return self.swept

    def _there(self, plan: LivePlan) -> bool:
        return not self.force and kept(plan) is not None

    def _planned(self, config: RunConfig, pool: Pool, pilots: Pilots | None) -> LivePlan | Failure:
        try:
            rated, found = with_rate(config, pool, pilots)
            plan = plan_of(rated)
        except BenchError as error:
            self.swept.pilots.append(None)
            return Failure(config, error.exit_code, str(error))
        self.swept.pilots.append(found)
        return plan

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
        outcomes = self.swept.outcomes
        results = [outcome for outcome in outcomes if isinstance(outcome, RunResult)]
        at, share = len(outcomes), done / max(1, total)
        running = share * self._calls[at]
        standing = Standing(
            len(self.configs), len(results), sum(r.cached for r in results), at - len(results),
            sum(r.summary["calls"] for r in results if not r.cached) + running,
            sum(self._calls[at:]) - running, time.monotonic() - self._began,
        )  # fmt: skip
        self.progress(standing)

"""The pilot of a workload: programs of it, all at once, under fcfs. It says what the machine can do, and its
steps are what predictions are fitted on where there is no other run.

The rule, settled before any cell was measured: capacity is the programs per second until ``SATURATED`` of the
pilot's tokens (prompts and replies) were answered; a run without --rate gets ``live.load`` times that. The
pilot's programs have a seed of their own, so that no cell is measured with what its rate was told from. There
are as many as in the run, at most ``MOST`` or two for each of the engine's places; a horizon has rate times
seconds of them, whatever the seed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from bench.config import RunConfig
from bench.drivers.live_records import LiveRun
from bench.errors import BenchError, MissingError
from bench.files import write_json
from bench.live.drive import measure, plain_steps
from bench.live.lag import lag
from bench.live.plan import LivePlan, live_plan
from bench.live.pool import Pool
from systems.catalog import DEFAULT_SYSTEM

SATURATED = 0.75
"""Share of a pilot's tokens after which its end, where batches shrink, begins."""
SEED = 1_000_003
MOST = 32
"""Programs of a pilot; more only where that many would leave an engine's places free."""
KEPT = ("engine.", "live.")
"""Knobs that a pilot has from its run: the others are the system's, and the pilot is of the base system."""
FOLDER = "pilots"


@dataclass(frozen=True)
class Pilot:
    """``capacity`` in programs per second; ``lag_s``: see ``bench.live.lag``; ``steps``: as in a cell's
    steps.json; ``verdict``: the client's of itself."""

    name: str
    capacity: float
    programs: int
    lag_s: float
    steps: Sequence[Any]
    verdict: str

    @classmethod
    def read(cls, path: Path) -> Pilot | None:
        """None if there is none."""
        try:
            return cls(**json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            return None


class Pilots:
    """The pilots of a sweep, on the engines of ``pool``. One that fails is not measured again for the next
    cell that asks for it."""

    def __init__(self, pool: Pool, say: Callable[[str], None]) -> None:
        self._pool = pool
        self._say = say
        self._failed: dict[Path, BenchError] = {}

    def of(self, config: RunConfig) -> Pilot:
        """The pilot of a run's workload, measured or found. Raises BenchError."""
        plan = pilot_plan(config)
        path = _path(config, plan)
        if (found := Pilot.read(path)) is not None:
            return found
        if (before := self._failed.get(path)) is not None:
            raise type(before)(str(before))
        try:
            return _measured(plan, path, self._pool, self._say)
        except BenchError as error:
            self._failed[path] = error
            raise


def _measured(plan: LivePlan, path: Path, pool: Pool, say: Callable[[str], None]) -> Pilot:
    say(
        f"pilot of {plan.programs.name}: {len(plan.programs.programs)} programs at once, {plan.config.system}"
    )
    try:
        run = measure(plan, pool.get(plan))
    except MissingError:  # something of it has died
        pool.drop(plan)
        raise
    live = run.live
    made = Pilot(
        path.stem, capacity(live), len(live.programs), lag(live, run.logs), plain_steps(run.logs),
        live.audit.verdict,
    )  # fmt: skip
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, vars(made))
    say(f"pilot of {plan.programs.name}: {made.capacity:.3g} programs/s in {live.took:.1f} s")
    return made


def kept_pilot(config: RunConfig) -> Pilot | None:
    """The pilot, if it was measured before."""
    return Pilot.read(_path(config, pilot_plan(config)))


def loaded(config: RunConfig, found: Pilot, load: float) -> RunConfig:
    """The run with its share of the capacity as its rate, where it has none and needs one."""
    return config if has_load(config) else replace(config, rate=float(f"{load * found.capacity:.3g}"))


def has_load(config: RunConfig) -> bool:
    """Whether it is said how many programs come: at a rate, or so many at all times, as agents always are."""
    return config.rate is not None or config.concurrency is not None or config.agents


def capacity(live: LiveRun) -> float:
    """Programs per second until ``SATURATED`` of the tokens were answered."""
    calls = sorted((c for c in live.calls if c.answered), key=lambda c: c.t_last)
    tokens = np.cumsum([c.prompt_tokens + len(c.tokens) for c in calls])
    at = int(np.searchsorted(tokens, SATURATED * tokens[-1]))
    return SATURATED * len(live.programs) / calls[at].t_last


def pilot_plan(config: RunConfig) -> LivePlan:
    """The pilot of a run's workload, on the base system. Raises BenchError."""
    base = replace(
        config,
        system=DEFAULT_SYSTEM,
        scheduler=None,
        router=None,
        seed=SEED,
        rate=1.0,
        concurrency=None,
        horizon=None,
        n=_asked(config),
        knobs={name: value for name, value in config.knobs.items() if name.startswith(KEPT)},
    )
    plan = live_plan(base)
    most = max(MOST, 2 * plan.engine.max_num_seqs)
    if len(plan.programs.programs) > most:
        plan = live_plan(replace(base, n=most))
    plan.times = [0.0] * len(plan.programs.programs)
    return plan


def _asked(config: RunConfig) -> int | None:
    """How many programs the run has; None: as many as the workload has, or the rate is not known yet."""
    if config.horizon is None:
        return config.n
    return None if config.rate is None else max(1, round(config.rate * config.horizon))


def _path(config: RunConfig, plan: LivePlan) -> Path:
    """Named after all that decides it, without the code: a rate must not change with an edit elsewhere."""
    deciding = {k: v for k, v in plan.identity.items() if k not in ("code", "live_code")}
    name = hashlib.sha256(json.dumps(deciding, sort_keys=True).encode()).hexdigest()[:16]
    return config.out / FOLDER / f"{name}.json"

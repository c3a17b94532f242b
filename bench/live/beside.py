"""Live cells with the simulator's prediction beside each, and over seeds."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from bench.code import code_digest
from bench.config import RunConfig
from bench.drivers.effects import ProgramError
from bench.errors import BenchError, InvalidRun
from bench.eventlog import read_tables
from bench.files import write_json
from bench.live.pilot import Pilot, pilot_plan
from bench.live.plan import SCALED, LivePlan, with_scale
from bench.live.predict import ENSEMBLE, Fit, Numbers, numbers_of, predict, predictor_code
from bench.plan import spec_of
from bench.run import RunResult
from bench.stats import Estimate, t_interval
from systems.capabilities import MissingCapability, check
from systems.latency.calibration import Calibration

FILE = "predicted.json"
GOVERNING = ("gate", "retention")
"""Slots whose policies have constants in tokens and seconds, which each system needs its own of."""


@dataclass(frozen=True)
class LiveCell:
    """A finished cell, its plan, and the pilot of its workload (None where none was needed)."""

    plan: LivePlan
    result: RunResult
    pilot: Pilot | None

    @property
    def name(self) -> str:
        """For people."""
        config = self.plan.config
        return f"{config.system} on {config.workload}, seed {config.seed} ({self.result.folder.name})"


@dataclass(frozen=True)
class Pair:
    """One cell: measured, and predicted (None where nothing could be fitted or simulated: ``note`` says why).
    ``shared``: see ``Fit``."""

    cell: LiveCell
    measured: Numbers
    predicted: Numbers | None
    note: str = ""
    shared: float = 0.0


def unpredictable(plan: LivePlan) -> str:
    """Why the simulator cannot say anything about a system: it has not its gate or front; else nothing."""
    try:
        check(plan.spec, "sim")
    except MissingCapability as error:
        return f"no prediction: {error}"
    return ""


class Predictor:
    """Predicts cells of one sweep from its others; what was predicted already is read from the cell."""

    def __init__(self, cells: Sequence[LiveCell]) -> None:
        self._cells = cells
        self._fitted: dict[str, Calibration] = {}

    def pair(self, cell: LiveCell) -> Pair:
        """Measured and, where that can be, predicted. Raises BenchError if the cell cannot be read."""
        measured = numbers_of(read_tables(cell.result.folder))
        if why := unpredictable(cell.plan):
            return Pair(cell, measured, None, why)
        try:
            fit = self.fit(cell)
            return Pair(cell, measured, self._predicted(cell, fit), shared=fit.shared)
        except (BenchError, ProgramError) as error:
            return Pair(cell, measured, None, f"{cell.name} has no prediction: {error}")

    def fit(self, cell: LiveCell) -> Fit:
        """Cells under fcfs of the same workload, limits and load with other seeds; else the pilot.

        Raises InvalidRun if there is neither, or steps cannot be read.
        """
        others = [other for other in self._cells if _tells_of(other.plan, cell.plan)]
        if others:
            steps = [_steps(other.result.folder / "steps.json") for other in others]
            engines = [engine for one, _ in steps for engine in one]
            lag_s = float(np.median([one for _, one in steps]))
            names = tuple(other.result.folder.name for other in others)
            return Fit(names, engines, lag_s, _shared(cell.plan, [other.plan for other in others]))
        if cell.pilot is not None and cell.pilot.steps:
            shared = _shared(cell.plan, [pilot_plan(cell.plan.config)])
            return Fit((f"pilot {cell.pilot.name}",), cell.pilot.steps, cell.pilot.lag_s, shared)
        raise InvalidRun("no other cell under fcfs was measured to fit step times on")

    def _predicted(self, cell: LiveCell, fit: Fit) -> Numbers:
        path, plan = cell.result.folder / FILE, cell.plan
        made_of = {"code": code_digest(), "predictor": predictor_code(), "fitted_on": list(fit.sources),
                   "steps": fit.digest, "ensemble": ENSEMBLE, "shared_programs": fit.shared}  # fmt: skip
        if (found := _read(path, made_of)) is not None:
            return found
        if fit.digest not in self._fitted:
            self._fitted[fit.digest] = fit.calibration(plan.config.model, plan.served.kind)
        calibration = self._fitted[fit.digest]
        numbers = predict(plan, fit, calibration)
        fitted = {"coefficients": dict(calibration.coefficients), "lag_s": fit.lag_s,
                  "held_out": [str(row) for row in calibration.held_out]}  # fmt: skip
        write_json(path, {**made_of, **fitted, "numbers": numbers._asdict()})
        return numbers


def others_tell(plans: Sequence[LivePlan | None]) -> list[bool]:
    """Of each plan, whether others of them can be what its step times are fitted on."""
    there = [plan for plan in plans if plan is not None]
    return [plan is not None and any(_tells_of(other, plan) for other in there) for plan in plans]


def _tells_of(other: LivePlan, plan: LivePlan) -> bool:
    """Whether the other's steps may tell of these: under fcfs, all else alike, never of the same seed."""
    if other.config.seed == plan.config.seed or other.spec.scheduler != "fcfs":
        return False
    return (
        _bare(other) == _bare(plan) and other.engine == plan.engine
        and other.served.digest == plan.served.digest
    )  # fmt: skip


def _bare(plan: LivePlan) -> RunConfig:
    """The run without its system and seed; limits among the knobs are the engine's."""
    return replace(plan.config, system="", scheduler=None, router=None, knobs={}, seed=0)


def _shared(plan: LivePlan, others: Sequence[LivePlan]) -> float:
    """Of the plan's programs, the share that others have, too."""
    theirs = {spec.key for other in others for spec in other.programs.programs}
    own = [spec.key in theirs for spec in plan.programs.programs]
    return sum(own) / len(own)


def _steps(path: Path) -> tuple[list[Any], float]:
    """(engines, lag in s) of a cell's steps.json. Raises InvalidRun."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        return list(data["engines"]), float(data["lag_s"])
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise InvalidRun(f"{path} cannot be read ({error!r}): run that cell again with --force") from None


def _read(path: Path, made_of: Mapping[str, Any]) -> Numbers | None:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        if any(data[name] != value for name, value in made_of.items()):
            return None
        values = data["numbers"]
        return Numbers(
            *(math.nan if values[name] is None else float(values[name]) for name in Numbers._fields)
        )
    except (OSError, ValueError, LookupError, TypeError):
        return None


# Over seeds


def table(pairs: Sequence[Pair]) -> list[dict[str, Any]]:
    """A row for each workload, setting and system, in the order of the cells: measured and predicted numbers
    with t intervals over seeds, and the paired ratio of mean latencies to the setting's first system.

    Raises InvalidRun if cells that differ would count as one cell's seeds.
    """
    told = _Names(pairs)
    groups: dict[tuple[str, str], dict[str, Pair]] = {}
    for pair in pairs:
        group = groups.setdefault((told.setting(pair), told.system(pair)), {})
        group[pair.cell.plan.cell] = pair  # one that was asked for twice is there once
    first: dict[str, tuple[str, list[Pair]]] = {}
    rows = []
    for (setting, system), cells in groups.items():
        found = list(cells.values())
        _check_seeds(f"{system}, {setting}", found)
        base = first.setdefault(setting, (system, found))
        rows.append(_row(setting, system, found, base))
    return rows


def _check_seeds(what: str, found: Sequence[Pair]) -> None:
    by_seed: dict[int, str] = {}
    for pair in found:
        seed, name = pair.cell.plan.config.seed, pair.cell.result.folder.name
        if (other := by_seed.setdefault(seed, name)) != name:
            raise InvalidRun(
                f"no table of measured and predicted numbers: {what}: {other} and {name} both have seed "
                f"{seed}, so they differ in something else and are no seeds of one cell"
            )


class _Names:
    """What tells the cells of a sweep from each other."""

    def __init__(self, pairs: Sequence[Pair]) -> None:
        given = [_given(pair) for pair in pairs]
        self._varied = [name for name in _varied(given) if not _governs(name)]
        systems: dict[str, list[dict[str, str]]] = {}
        for pair, one in zip(pairs, given, strict=True):
            systems.setdefault(self._bare(pair), []).append(one)
        self._own = {name: [k for k in _varied(ones) if _governs(k)] for name, ones in systems.items()}

    def system(self, pair: Pair) -> str:
        """The system, with what was replaced in it, and those knobs of gate and retention in which it
        differs from others of its name."""
        name, own = self._bare(pair), _given(pair)
        return " ".join([name, *(f"{k}={own[k]}" for k in self._own[name] if k in own)])

    @staticmethod
    def _bare(pair: Pair) -> str:
        config = pair.cell.plan.config
        slots = (("scheduler", config.scheduler), ("router", config.router),
                 *((slot, config.knobs.get(slot)) for slot in GOVERNING))  # fmt: skip
        return " ".join([config.system, *(f"{slot}={name}" for slot, name in slots if name)])

    def setting(self, pair: Pair) -> str:
        """Workload, load, engines, and varied knobs and parameters."""
        summary, config, own = pair.cell.result.summary, pair.cell.plan.config, _given(pair)
        words = [f"{name}={own[name]}" for name in self._varied if name in own]
        engines = "1 engine" if config.replicas == 1 else f"{config.replicas} engines"
        return ", ".join([str(summary["workload"]), str(summary["load"]), engines, *words])


def _varied(given: Sequence[Mapping[str, str]]) -> list[str]:
    return sorted({k for one in given for k in one if any(o.get(k) != one[k] for o in given)})


def _governs(knob: str) -> bool:
    """Whether it is the system's gate or retention, or a knob of theirs: that tells systems apart."""
    return knob.partition(".")[0] in GOVERNING


def _given(pair: Pair) -> dict[str, str]:
    """What was asked for: knobs, but for those that follow from system and workload, parameters, fields."""
    plan = pair.cell.plan
    config = plan.config
    plain = replace(config, knobs={k: v for k, v in config.knobs.items() if k not in SCALED})
    following = with_scale(plain, spec_of(plain), plan.programs).knobs
    knobs = {k: v for k, v in config.knobs.items() if k not in SCALED or v != following.get(k)}
    fields = {"model": config.model, "format": config.format, "on_overflow": config.on_overflow}
    return {**knobs, **config.parameters, **{k: v for k, v in fields.items() if v is not None}}


def _row(
    setting: str, system: str, found: Sequence[Pair], base: tuple[str, Sequence[Pair]]
) -> dict[str, Any]:
    predicted = [pair.predicted for pair in found if pair.predicted is not None]
    first = found is base[1]
    return {
        "setting": setting,
        "workload": str(found[0].cell.result.summary["workload"]),
        "system": system,
        "badge": found[0].cell.result.summary["badge"],
        "seeds": sorted(pair.cell.plan.config.seed for pair in found),
        "programs": len(found[0].cell.plan.programs.programs),
        "shared_programs": max(pair.shared for pair in found),
        "measured": _over_seeds([pair.measured for pair in found]),
        "predicted": _over_seeds(predicted),
        "ratio": None if first else _ratio(found, base[1], False),
        "predicted_ratio": None if first else _ratio(found, base[1], True),
        "base": base[0],
        "verdicts": _verdicts(found),
    }


def _over_seeds(numbers: Sequence[Numbers]) -> dict[str, Any]:
    if not numbers:
        return {}
    columns = zip(Numbers._fields, zip(*numbers, strict=True), strict=True)
    return {name: t_interval(values)._asdict() for name, values in columns}


def _ratio(found: Sequence[Pair], base: Sequence[Pair], predicted: bool) -> dict[str, Any]:
    """exp of the mean log ratio of mean latencies, paired by seed, with its t interval."""
    before = {pair.cell.plan.config.seed: _mean(pair, predicted) for pair in base}
    after = {pair.cell.plan.config.seed: _mean(pair, predicted) for pair in found}
    logs = [math.log(after[seed] / before[seed]) for seed in sorted(after.keys() & before.keys())
            if after[seed] > 0 and before[seed] > 0]  # fmt: skip
    if not logs:
        return Estimate(math.nan, note="no pair of seeds")._asdict()
    one = t_interval(logs)
    return Estimate(
        math.exp(one.value), math.exp(one.low), math.exp(one.high), one.method, one.note
    )._asdict()


def _mean(pair: Pair, predicted: bool) -> float:
    numbers = pair.predicted if predicted else pair.measured
    return math.nan if numbers is None else numbers.response_mean


def _verdicts(found: Sequence[Pair]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for pair in found:
        verdict = str((pair.cell.result.summary.get("client") or {}).get("verdict", "unknown"))
        counts[verdict] = counts.get(verdict, 0) + 1
    return counts

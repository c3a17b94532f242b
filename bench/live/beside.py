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
from bench.eventlog import read_tables
from bench.files import write_json
from bench.live.pilot import Pilot
from bench.live.plan import SCALED, LivePlan
from bench.live.predict import ENSEMBLE, Fit, Numbers, numbers_of, predict
from bench.run import RunResult
from bench.stats import Estimate, t_interval
from systems.capabilities import MissingCapability, check
from systems.latency.calibration import Calibration

FILE = "predicted.json"


@dataclass(frozen=True)
class LiveCell:
    """A finished cell, its plan, and the pilot of its workload (None: engines without a log of ours)."""

    plan: LivePlan
    result: RunResult
    pilot: Pilot | None


@dataclass(frozen=True)
class Pair:
    """One cell: measured, and predicted (None where nothing could be fitted, or simulated)."""

    cell: LiveCell
    measured: Numbers
    predicted: Numbers | None


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
        self._fitted: dict[tuple[str, ...], Calibration] = {}

    def pair(self, cell: LiveCell) -> Pair:
        """Measured and predicted. Raises BenchError."""
        measured = numbers_of(read_tables(cell.result.folder))
        fit = None if unpredictable(cell.plan) else self.fit(cell)
        return Pair(cell, measured, None if fit is None else self._predicted(cell, fit))

    def fit(self, cell: LiveCell) -> Fit | None:
        """Cells under fcfs of the same workload, limits and load with other seeds; else the pilot."""
        others = [other for other in self._cells if _alike(other.plan, cell.plan)]
        if others:
            steps = [json.loads((other.result.folder / "steps.json").read_text("utf-8")) for other in others]
            engines = [engine for one in steps for engine in one["engines"]]
            lag_s = float(np.median([one["lag_s"] for one in steps]))
            return Fit(tuple(other.result.folder.name for other in others), engines, lag_s)
        if cell.pilot is not None and cell.pilot.steps:
            return Fit((f"pilot {cell.pilot.name}",), cell.pilot.steps, cell.pilot.lag_s)
        return None

    def _predicted(self, cell: LiveCell, fit: Fit) -> Numbers:
        path = cell.result.folder / FILE
        made_of = {"code": code_digest(), "fitted_on": list(fit.sources), "ensemble": ENSEMBLE}
        if (found := _read(path, made_of)) is not None:
            return found
        plan = cell.plan
        if fit.sources not in self._fitted:
            self._fitted[fit.sources] = fit.calibration(plan.config.model, plan.served.kind)
        calibration = self._fitted[fit.sources]
        numbers = predict(plan, fit, calibration)
        fitted = {"coefficients": dict(calibration.coefficients), "lag_s": fit.lag_s,
                  "held_out": [str(row) for row in calibration.held_out]}  # fmt: skip
        write_json(path, {**made_of, **fitted, "numbers": numbers._asdict()})
        return numbers


def _alike(other: LivePlan, plan: LivePlan) -> bool:
    """Whether the other's steps may tell of these: never a run with the same programs."""
    same = replace(other.config, system="", scheduler=None, router=None, knobs={}, seed=0) == replace(
        plan.config, system="", scheduler=None, router=None, knobs={}, seed=0
    )
    return (
        same and other.config.seed != plan.config.seed and other.spec.scheduler == "fcfs"
        and other.engine == plan.engine and other.served.digest == plan.served.digest
    )  # fmt: skip


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
    with t intervals over seeds, and the paired ratio of mean latencies to the setting's first system."""
    told = _Names(pairs)
    groups: dict[tuple[str, str], list[Pair]] = {}
    for pair in pairs:
        groups.setdefault((told.setting(pair), told.system(pair)), []).append(pair)
    first: dict[str, tuple[str, list[Pair]]] = {}
    rows = []
    for (setting, system), found in groups.items():
        base = first.setdefault(setting, (system, found))
        rows.append(_row(setting, system, found, base))
    return rows


class _Names:
    """What tells the cells of a sweep from each other."""

    def __init__(self, pairs: Sequence[Pair]) -> None:
        given = [_given(pair) for pair in pairs]
        self._varied = sorted({k for one in given for k in one if any(o.get(k) != one[k] for o in given)})

    def system(self, pair: Pair) -> str:
        """The system, with what was replaced in it."""
        config = pair.cell.plan.config
        slots = (("scheduler", config.scheduler), ("router", config.router))
        return " ".join([config.system, *(f"{slot}={name}" for slot, name in slots if name)])

    def setting(self, pair: Pair) -> str:
        """Workload, load, engines, and varied knobs and parameters."""
        summary, config, own = pair.cell.result.summary, pair.cell.plan.config, _given(pair)
        words = [f"{name}={own[name]}" for name in self._varied if name in own]
        engines = "1 engine" if config.replicas == 1 else f"{config.replicas} engines"
        return ", ".join([str(summary["workload"]), str(summary["load"]), engines, *words])


def _given(pair: Pair) -> dict[str, str]:
    """Knobs and parameters, but for those that follow from the system."""
    config = pair.cell.plan.config
    return {k: v for k, v in {**config.knobs, **config.parameters}.items() if k not in SCALED}


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

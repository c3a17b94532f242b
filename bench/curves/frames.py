"""From a study's points to the frames that figures take (docs/report.md)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

from bench.curves.crossing import INF
from bench.curves.judge import judge
from bench.curves.points import Point, sustainable
from bench.curves.spec import Load, Variation
from bench.curves.study import FIRST_SEED, Study
from bench.gather import Cell, Labels, Logs, point
from bench.results import manifest_of
from bench.stats import t_interval

METRIC = "transient.mean_of_ratios"


class Names(Labels):
    """Cells under the names that the experiment gives them."""

    @classmethod
    def of_points(cls, points: Iterable[Point], loads: Mapping[str, Load]) -> Names:
        """For the cells of these points."""
        names = cls(frozenset(), 1)
        known = {str(p.summary["cell"]): (p.system, loads[p.load].label) for p in points}
        object.__setattr__(names, "known", known)
        return names

    known: Mapping[str, tuple[str, str]]

    def system(self, cell: Cell) -> str:
        """As the experiment calls it."""
        return self.known[str(cell.summary["cell"])][0]

    def workload(self, cell: Cell) -> str:
        """The experiment's label."""
        return self.known[str(cell.summary["cell"])][1]


def frames(studies: Sequence[Study]) -> dict[str, pd.DataFrame]:
    """Frames of one study per model, but for horizons and sensitivity (``horizon_frame`` and so on)."""
    loads = {w.name: w for w in studies[0].curves.workloads}
    points = [p for study in studies for p in study.points]
    names = Names.of_points(points, loads)
    cells = {str(p.summary["cell"]): Cell(p.folder, p.summary, manifest_of(p.folder)) for p in points}
    rows = pd.DataFrame([point(cell, names) for cell in cells.values()])
    logs = Logs(names)
    for study in studies:
        for p in overloaded(study):
            logs.add(cells[str(p.summary["cell"])])
    return {
        "points": _multiples(rows, studies),
        "claims": pd.DataFrame([row for study in studies for row in judge(study)]),
        "crossings": pd.DataFrame([row for study in studies for row in _crossings(study)]),
        "paper_axes": pd.DataFrame([row for study in studies for row in _axes(study)]),
        "hits": rows[["workload", "model", "system", "rate", "seed"]].assign(
            hit_rate=rows["kv.hit_rate"], optimum=rows["kv.optimum"]
        ),
        "split": logs.split(),
        "bins_calls": logs.bins("calls"),
        "bins_programs": logs.bins("programs"),
    }


def overloaded(study: Study) -> list[Point]:
    """The systems that were swept there, at one load beyond saturation, on the scan's seed."""
    rates = {load.name: study.overload(load) for load in study.loads()}
    return [p for p in study.points if p.seed == FIRST_SEED and p.rate == rates[p.load]]


def _multiples(rows: pd.DataFrame, studies: Sequence[Study]) -> pd.DataFrame:
    saturation = {
        (study.model, load.label): study.saturation(load) for study in studies for load in study.loads()
    }
    keys = zip(rows.model, rows.workload, strict=True)
    return rows.assign(multiple=rows.rate / [saturation[k] for k in keys])


def _crossings(study: Study) -> Iterable[dict[str, Any]]:
    for load in study.loads():
        for system in study.curves.systems:
            for latency, found in study.crossings(load, system).items():
                yield {
                    "workload": load.label, "model": study.model, "system": system, "latency": latency,
                    "rate": found.rate if found.closed else math.nan, "low": found.low, "high": found.high,
                }  # fmt: skip


def _axes(study: Study) -> Iterable[dict[str, Any]]:
    for load in study.loads():
        if ticks := load.ticks.get(study.model):
            yield {"workload": load.label, "model": study.model, "low": min(ticks), "high": max(ticks)}


def horizon_frame(study: Study, points: Sequence[Point]) -> pd.DataFrame:
    """``horizons``: the same rate with programs arriving for shorter and longer."""
    labels = {w.name: w.label for w in study.curves.workloads}
    rows = [
        {"workload": labels[p.load], "model": study.model, "system": p.system, "rate": p.rate,
         "horizon": p.horizon, "seed": p.seed, METRIC: p.value(METRIC)}
        for p in points
    ]  # fmt: skip
    return pd.DataFrame(rows)


def sensitivity_frame(study: Study, found: Sequence[tuple[Variation, Point]]) -> pd.DataFrame:
    """``sensitivity``: each variation's latency over that of the default, paired by seed."""
    labels = {w.name: w.label for w in study.curves.workloads}
    base = {(p.load, p.system, p.seed): p.value(METRIC) for v, p in found if v.default}
    rows = [
        {"workload": labels[p.load], "knob": v.name, "value": v.value, "default": v.default, "seed": p.seed,
         METRIC: p.value(METRIC), "ratio_to_default": p.value(METRIC) / base[p.load, p.system, p.seed],
         "rate": p.rate, "horizon": p.horizon, "system": p.system}
        for v, p in found
    ]  # fmt: skip
    return pd.DataFrame(rows)


def means(study: Study) -> pd.DataFrame:
    """Every point beside its deciding facts: both means, tails, finished-only, censored, sustained."""
    labels = {w.name: w.label for w in study.curves.workloads}
    groups: dict[tuple[str, str, float], list[Point]] = {}
    for p in study.points:
        groups.setdefault((p.load, p.system, p.rate), []).append(p)
    names = ("mean_of_ratios", "ratio_of_means", "p95", "p99", "finished_only", "censored", "finished_share")
    rows = []
    for (load, system, rate), points in sorted(groups.items()):
        values = {n: t_interval([p.value(f"transient.{n}") for p in points]) for n in names}
        rows.append(
            {"workload": labels[load], "model": study.model, "system": system, "programs/s": rate,
             "seeds": len(points), "sustained": "yes" if sustainable(points) else "no",
             **{n: v.value for n, v in values.items()},
             "sustained_mean": t_interval([p.value("sustained.mean_of_ratios") for p in points]).value}
        )  # fmt: skip
    return pd.DataFrame(rows)


def bounds(low: float, high: float) -> str:
    """A bracket in words."""
    return f"> {low:.3g}" if high == INF else f"< {high:.3g}" if low <= 0 else f"{low:.3g}..{high:.3g}"

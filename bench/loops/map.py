"""Who wins where: the best system at every crossing of an experiment's axes, and by how much.

Closed loops are compared by steps/min, open ones (where all do the same work) by the mean time of a program:
ThunderAgent's metric and Continuum's. The winner is chosen and tested on the same seeds, at many places: a
lead counts as clear where the winner is told from every other system (two-sided paired t tests of the log
ratio, the largest p-value of the place's, Holm over all places), leads the second by 2 %, and 8 seeds stand
behind it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from bench.curves.crossing import ratio
from bench.loops.spec import Panel, Place
from bench.loops.study import Study
from bench.loops.words import mean_of
from bench.paired import holm, paired
from bench.stats import VERDICT_SEEDS, Estimate

LEAST_LEAD = 1.02
"""A lead over the second below this is none, however sure."""
ALONE = 0.05
"""p of one comparison, above which two systems of a place are called alike."""


def metric(panel: Panel) -> tuple[str, bool]:
    """(quantity, whether more of it is better)."""
    return ("program_s", False) if panel.open else ("steps_per_min", True)


def winners(study: Study) -> list[dict[str, Any]]:
    """A row per panel that lies on axes: who is best, over the reference and over the second, paired.

    ``p``: the largest p-value of the winner against any other; ``alike``: others that it is not told from
    even without a correction for many places; ``clear``: told from all others, by enough, on enough seeds;
    ``unknown``: systems without a full window on some seed, which nobody is told from.
    """
    rows = [row for panel in study.panels if panel.at and (row := _winner(study, panel)) is not None]
    for row, (rejected, _) in zip(rows, holm([row["p"] for row in rows]), strict=True):
        row["clear"] = rejected and row["lead"] >= LEAST_LEAD and row["seeds"] >= VERDICT_SEEDS
    return rows


def lead(study: Study, panel: Panel, one: str, other: str) -> Estimate:
    """How much better ``one`` is than ``other`` (above 1: better), paired over seeds."""
    a, b = _sides(study, panel, one, other)
    return ratio(a, b) if a.keys() & b.keys() else Estimate(math.nan, note="not run")


def p_of(study: Study, panel: Panel, one: str, other: str) -> float:
    """p-value of "no difference" (two-sided, paired, logarithms); 1 where seeds are few or lack values."""
    a, b = _sides(study, panel, one, other)
    seeds = sorted(a.keys() & b.keys())
    if len(seeds) < 2 or not all(a[s] > 0 and b[s] > 0 for s in seeds):
        return 1.0
    return paired([math.log(a[s] / b[s]) for s in seeds]).p()


def _sides(
    study: Study, panel: Panel, one: str, other: str
) -> tuple[Mapping[int, float], Mapping[int, float]]:
    """What a ratio is made of that is above 1 where ``one`` is better."""
    quantity, more = metric(panel)
    place: Place = panel.places[-1]
    a, b = (study.values(panel.name, system, place, quantity) for system in (one, other))
    return (a, b) if more else (b, a)


def _winner(study: Study, panel: Panel) -> dict[str, Any] | None:
    reference = study.loop.reference
    names = [s for s in panel.systems if (panel.name, s) not in study.missing]
    over = {s: lead(study, panel, s, reference) for s in names if s != reference}
    unknown = [s for s, e in over.items() if math.isnan(e.value)]
    over = {s: e for s, e in over.items() if s not in unknown}
    if not over:
        return None
    ranked = sorted({**over, reference: Estimate(1.0)}.items(), key=lambda item: -item[1].value)
    (best, gain), (second, _) = ranked[:2]
    ahead = lead(study, panel, best, second)
    p = {other: p_of(study, panel, best, other) for other in names if other != best}
    pressure = study.values(panel.name, reference, panel.places[-1], "pressure")
    return {
        "workload": panel.label, **panel.at, **layout(study, panel), "winner": best, "gain": gain.value,
        "gain_low": gain.low, "gain_high": gain.high, "second": second, "lead": ahead.value,
        "lead_low": ahead.low, "lead_high": ahead.high,
        "p": max(p.values()), "alike": ", ".join(other for other in p if p[other] > ALONE),
        "unknown": ", ".join(unknown), "metric": metric(panel)[0],
        "pressure_there": mean_of(pressure).value, "seeds": len(pressure), "badge": _badge(study, panel),
    }  # fmt: skip


def _badge(study: Study, panel: Panel) -> str:
    return next(str(row.result.summary["badge"]) for row in study.rows if row.panel == panel.name)


def layout(study: Study, panel: Panel) -> dict[str, str]:
    """Where a panel lies in the picture: x and y are the first two crossed axes, the rest names its map."""
    crossed = [a.name for a in study.loop.axes if a.crossed][:2]
    base = {a.name: a.values[0].name for a in study.loop.axes}
    rest = [f"{k} {v}" for k, v in panel.at.items() if k not in crossed and v != base[k]]
    usual = [f"{k} {v}" for k, v in base.items() if k not in crossed]
    x, y = (f"{name} {panel.at[name]}" for name in crossed)
    return {"x": x, "y": y, "map": ", ".join(rest) or ", ".join(usual)}


def marks(study: Study) -> list[dict[str, Any]]:
    """The papers' points, where they lie on the map."""
    found = []
    for mark in study.loop.marks:
        base = {a.name: a.values[0].name for a in study.loop.axes}
        place = Panel(mark.label, mark.label, at={**base, **mark.at})
        found.append(
            {
                "workload": study.loop.panels[0].label,
                "label": mark.label,
                "note": mark.note,
                **layout(study, place),
            }
        )
    return found

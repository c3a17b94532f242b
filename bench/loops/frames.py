"""From a study's rows to the frames that figures and tables take (docs/report.md)."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd

from bench.loops.judge import judge
from bench.loops.map import marks, winners
from bench.loops.quantities import QUANTITIES
from bench.loops.study import Study
from bench.loops.words import mean_of

TABLE = ("steps_per_min", "hit", "latency", "latency_p99", "wait_p99", "hold_p99", "hold_max", "little",
         "in_loop", "pressure", "work_per_min", "makespan", "recompute")  # fmt: skip
TWO_ENGINES = ("imbalance", "imbalance_minutes")
SANDBOXES = ("env_wait", "env_prepare", "peak_disk_gb")


def frames(study: Study) -> dict[str, pd.DataFrame]:
    """Every frame of a study: claims, a row per cell, the paper's values, the map and what lies on it."""
    curves = any(len(p.places) > 1 for p in study.panels)
    found = {"claims": pd.DataFrame(judge(study)), "loop_paper": paper(study)}
    found |= {"loop_points": points(study)} if curves else {}
    if study.loop.axes:
        found |= {"settle": pd.DataFrame(winners(study)), "settle_marks": pd.DataFrame(marks(study))}
    return {name: frame for name, frame in found.items() if len(frame)}


def points(study: Study) -> pd.DataFrame:
    """A row per cell that reports; the varied ones are left out."""
    panels = {p.name: p for p in study.panels}
    rows = []
    for row in study.rows:
        panel = panels[row.panel]
        if not row.varied:
            rows.append(
                {"workload": panel.label, "model": panel.model, "system": row.system, "place": row.place,
                 "open": panel.open, "seed": row.seed, "covered": row.covered,
                 "badge": row.result.summary["badge"], "cell": row.result.summary["cell"],
                 **{q: row.numbers.get(q, math.nan) for q in QUANTITIES}}
            )  # fmt: skip
    return pd.DataFrame(rows)


def paper(study: Study) -> pd.DataFrame:
    """The paper's value of a quantity at each place, where it prints one."""
    return pd.DataFrame(
        [
            {"workload": panel.label, "model": panel.model, "system": system, "place": place,
             "quantity": quantity, "value": value}
            for panel in study.panels for quantity, rows in panel.paper.items()
            for system, values in rows.items() for place, value in zip(panel.places, values, strict=True)
        ]
    )  # fmt: skip


def table(study: Study) -> pd.DataFrame:
    """A row per panel, system and place: means over seeds, none where a seed has no value; ``window``: least
    share of it that was full (below .5 there are no values of it)."""
    shown = [*TABLE]
    shown += TWO_ENGINES if any(p.replicas > 1 for p in study.panels) else ()
    shown += SANDBOXES if any("env_wait" in row.numbers for row in study.rows) else ()
    shown += ("regret",) if any("regret" in row.numbers for row in study.rows) else ()
    frame = points(study)
    if frame.empty:
        return frame
    keys = ["workload", "place", "system"]
    rows = []
    for values, part in frame.groupby(keys, sort=False):
        means: dict[str, Any] = {q: mean_of(dict(zip(part.seed, part[q], strict=True))) for q in shown}
        halves = {f"{q} +-": (means[q].high - means[q].low) / 2 for q in study.loop.shown}
        rows.append(
            dict(zip(keys, values, strict=True)) | {q: m.value for q, m in means.items()}
            | halves | {"seeds": len(part), "window": part.covered.min()}
        )  # fmt: skip
    return pd.DataFrame(rows).dropna(axis="columns", how="all")


def fits(study: Study) -> pd.DataFrame:
    """What was fitted, and what was tuned."""
    names = {g: g.partition(" ")[0] for g in study.fits}
    fitted = [
        {"panel": names[g], "what": "step times x", "value": f"{f.scale:g}",
         "why": str(f)}
        for g, f in study.fits.items()
    ]  # fmt: skip
    tuned = [
        {"panel": panel, "what": f"{system}: {study.loop.system(system).tune} at {place:g}", "value": value,
         "why": "no value had a full window: chosen by nothing" if (panel, system) in study.untuned
                else "best on the tuning seeds"}
        for (panel, system), values in study.tuned.items() for place, value in values.items()
    ]  # fmt: skip
    return pd.DataFrame([*fitted, *tuned])


def lacking(study: Study) -> list[str]:
    """What is not testable here, and why: lines."""
    found: dict[str, list[str]] = {}
    for (panel, system), why in study.missing.items():
        found.setdefault(f"{system}: {why}", []).append(panel)
    lines = [f"{why} (panels {', '.join(panels)})" for why, panels in found.items()]
    return [*(f"{what}: {why}" for what, why in study.loop.untestable.items()), *lines]

"""A report of finished results: gather frames, draw what they give, write one page.

``frames`` and ``write`` serve ``bench report`` and experiments alike; an experiment adds
its own frames (claims, crossings by bisection, sensitivity) under the names of docs/report.md.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bench.agents.report import frame as agents_frame
from bench.cards import comparisons, entries
from bench.comparing import Cell as ComparedCell
from bench.errors import MissingError
from bench.files import explain, ready, write_atomic
from bench.gather import Cell, Found, Labels, Logs, Progress, find, longest, place, point
from bench.manifest import git_state, versions
from bench.policy_frames import PolicyLogs, acted, kv_costs
from bench.stats import VERDICT_SEEDS
from reports import cards as card_pages
from reports.figure import EMPTY, UNMARKED, Picture, figures, render
from reports.page import Section, table_of, verdicts
from reports.page import render as render_page

LATENCIES = (0.2, 0.3, 0.5)
"""s/token at which rates are compared (docs/report.md, crossings)."""
CROSSINGS = ("workload", "model", "system", "latency", "rate", "low", "high")
MEAN = "transient.mean_of_ratios"
PLACE = ["workload", "model", "system"]
FOLDER = "figures"
NEED = 20_000_000
"""Bytes a report may take: about a tenth of a megabyte a picture."""
NO_POLICY = "no gate, retention policy or sandbox acted in any of these results"
NO_SUCH = {
    "holds": "no gate held a call",
    "imbalance": "one engine only",
    "disk": "no sandboxes",
    "regrets": "no retention policy tells what it chose",
    **dict.fromkeys(("kv_costs", "worst_turns", "steps_over_time", "engines_over_time"), "no calls"),
}
EXPERIMENT = "only an experiment has them (bench reproduce)"


def frames(folders: Sequence[Path], progress: Progress | None = None) -> dict[str, pd.DataFrame]:
    """Every frame that the results in ``folders`` give (docs/report.md).

    One that they do not give is there, empty, and ``attrs["reason"]`` says why. Raises
    UsageError for what is no folder, MissingError if nothing in them is finished.
    """
    return frames_of(found_in(folders).cells, progress)


def found_in(folders: Sequence[Path]) -> Found:
    """The results in ``folders``. Raises UsageError, or MissingError if none is finished."""
    found = find(folders)
    if not found.cells:
        where = ", ".join(map(str, folders))
        why = (
            f"; {len(found.unfinished)} unfinished: {next(iter(found.unfinished.values()))}"
            if found.unfinished
            else ""
        )
        raise MissingError(f"no finished result in {where}{why}")
    return found


def frames_of(cells: Sequence[Cell], progress: Progress | None = None) -> dict[str, pd.DataFrame]:
    """``frames`` of cells that were found already; of several horizons at one load the longest, but for
    ``horizons``."""
    labels = Labels.of(cells)
    logs, policy = Logs(labels), PolicyLogs(labels)
    shown = longest(cells, labels)
    some = any(acted(cell) for cell in shown)
    for done, cell in enumerate(shown):
        logs.add(cell)
        if some:
            policy.add(cell)
        if progress is not None:
            progress(done + 1, len(shown))
    points = pd.DataFrame([point(cell, labels) for cell in shown])
    return {
        "points": points,
        "crossings": crossings(points),
        "horizons": _horizons(pd.DataFrame([point(cell, labels) for cell in cells])),
        "split": logs.split(),
        "bins_calls": logs.bins("calls"),
        "bins_programs": logs.bins("programs"),
        "hits": _hits(shown, labels),
        "claims": _absent(EXPERIMENT),
        "sensitivity": _absent(EXPERIMENT),
        "agents": made if len(made := agents_frame(shown, labels)) else _absent("none ran"),
        **_policies(policy, some, kv_costs(shown, labels)),
    }


def _policies(logs: PolicyLogs, some: bool, costs: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Frames of all cells where in one of them a gate, retention or sandboxes acted."""
    made = {"kv_costs": costs, **logs.frames()}
    if not some:
        return dict.fromkeys(made, _absent(NO_POLICY))
    return {name: frame if len(frame) else _absent(NO_SUCH[name]) for name, frame in made.items()}


def _absent(reason: str) -> pd.DataFrame:
    frame = pd.DataFrame()
    frame.attrs["reason"] = reason
    return frame


def _horizons(points: pd.DataFrame) -> pd.DataFrame:
    columns = [*PLACE, "rate", "horizon", "seed", MEAN]
    if MEAN not in points or not np.isfinite(points.rate).any():
        return _absent("no open loop: nothing arrives by itself")
    return points[np.isfinite(points.rate)][columns].reset_index(drop=True)


def _hits(cells: Sequence[Cell], labels: Labels) -> pd.DataFrame:
    def value(cell: Cell, name: str) -> float:
        found = cell.summary["metrics"][name]["value"]
        return float("nan") if found is None else float(found)

    return pd.DataFrame(
        [
            {**place(cell, labels), "seed": cell.summary["seed"],
             "hit_rate": value(cell, "kv.hit_rate"), "optimum": value(cell, "kv.optimum")}
            for cell in cells
        ]
    )  # fmt: skip


def crossings(points: pd.DataFrame) -> pd.DataFrame:
    """Where the mean latency over seeds first crosses LATENCIES: linear between two swept rates,
    which are ``low`` and ``high``. Never reached: rate NaN, low the highest rate, high infinite;
    exceeded from the start: rate NaN, low 0, high the lowest rate.
    """
    if MEAN not in points:
        return _absent("no open loop: nothing arrives by itself")
    means = points[np.isfinite(points.rate)].groupby([*PLACE, "rate"])[MEAN].mean().dropna()
    rows = []
    for values, curve in means.groupby(level=PLACE):
        rates = curve.index.get_level_values("rate").to_numpy(dtype=float)
        if len(rates) > 1:
            means_of = curve.to_numpy(dtype=float)
            rows += [[*values, level, *cross(rates, means_of, level)] for level in LATENCIES]
    if not rows:
        return _absent("one rate only: a crossing needs two")
    return pd.DataFrame(rows, columns=list(CROSSINGS))


def cross(rates: Any, values: Any, level: float) -> tuple[float, float, float]:
    """(rate, low, high) at which ``values`` over ascending ``rates`` first reach ``level``."""
    above = np.flatnonzero(values >= level)
    if not above.size:
        return float("nan"), float(rates[-1]), float("inf")
    k = int(above[0])
    if k == 0:
        return float("nan"), 0.0, float(rates[0])
    share = (level - values[k - 1]) / (values[k] - values[k - 1])
    return float(rates[k - 1] + share * (rates[k] - rates[k - 1])), float(rates[k - 1]), float(rates[k])


def not_drawn(data: Mapping[str, pd.DataFrame], drawn: Collection[str]) -> dict[str, str]:
    """Figure -> why these frames do not make it, for all that are not ``drawn``."""
    return {name: f.missing(data) or EMPTY for name, f in figures().items() if name not in drawn}


def write(
    out: Path,
    title: str,
    data: Mapping[str, pd.DataFrame],
    *,
    summary: str = "",
    sections: Sequence[Section] = (),
    provenance: Mapping[str, Any],
    progress: Progress | None = None,
) -> list[Path]:
    """``report.html`` and ``figures/NAME.{svg,png,csv}`` in ``out``; each whole or not at all.

    The page has the verdicts first (frame ``claims``), then every figure the frames make, the
    caller's ``sections``, what is not drawn and why, and ``provenance`` (``badge`` heads the
    page; see ``reports.page.render``). Returns what was written, the page first. Raises
    MissingError if ``out`` cannot be written.
    """
    pictures = draw(data, progress)
    drawn = {picture.name for picture in pictures}
    claims = data.get("claims")
    parts = [verdicts(claims)] if claims is not None and len(claims) else []
    parts += [Section("Figures", pictures=pictures)] if pictures else []
    parts += sections
    if gaps := not_drawn(data, drawn):
        parts.append(Section("Not drawn", "\n".join(f"* {name}: {why}" for name, why in gaps.items())))
    page = render_page(title, summary, parts, provenance)
    files = {out / "report.html": page.encode()}
    for picture in pictures:
        for ending, content in (("svg", picture.svg), ("png", picture.png), ("csv", picture.csv.encode())):
            files[out / FOLDER / f"{picture.name}.{ending}"] = content
    ready(out, NEED)
    try:
        (out / FOLDER).mkdir(exist_ok=True)
        for path, content in files.items():
            write_atomic(path, content)
    except OSError as error:
        raise explain(error, out) from None
    return list(files)


def draw(data: Mapping[str, pd.DataFrame], progress: Progress | None = None) -> list[Picture]:
    """Every figure that the frames make."""
    wanted = figures()
    found = []
    for done, figure in enumerate(wanted.values()):
        table = figure.table(data)
        if len(table):
            found.append(render(figure, data, table))
        if progress is not None:
            progress(done + 1, len(wanted))
    return found


def summary_text(found: Found, data: Mapping[str, pd.DataFrame]) -> str:
    """What is on the page, in a few lines."""
    points = data["points"]
    seeds = sorted(set(points.seed))
    text = (
        f"{len(found.cells):,} finished results, {points.programs.sum():,} programs, "
        f"{points.calls.sum():,} calls: {points.system.nunique()} systems, "
        f"{points.workload.nunique()} workloads, {len(seeds)} seeds."
    )
    notes = []
    if len(seeds) < VERDICT_SEEDS:
        notes.append(f"* Exploratory: verdicts need at least {VERDICT_SEEDS} seeds.")
    commits = {str(cell.manifest.get("git", {}).get("commit"))[:10] for cell in found.cells}
    if len(commits) > 1:
        notes.append(
            f"* The results were made by {len(commits)} versions of the code: {', '.join(sorted(commits))}."
        )
    if found.unfinished:
        notes.append(
            f"* {len(found.unfinished)} results are not finished and not on this page; see Provenance."
        )
    return "\n\n".join([text, "\n".join(notes)])


def provenance(found: Found, command: str) -> dict[str, Any]:
    """What made the numbers and the page: commands, code, versions, machines, each cell with its hash."""
    cells = found.cells
    badges = list(dict.fromkeys(str(c.summary["badge"]) for c in cells))
    machines = {str(c.manifest.get("hardware", {}).get("cpu")) for c in cells}
    made: dict[str, Any] = {
        "badge": badges[0] if len(badges) == 1 else _kinds(badges),
        "This page": {"command": command, **_described(git_state()), **versions(), **_drawn_with()},
        "Results were made with": [
            ", ".join(f"{k} {v}" for k, v in sorted(versions.items()))
            for versions in _unique(c.manifest.get("versions", {}) for c in cells)
        ],
        "Machines": sorted(machines),
        "Set-ups": badges,
        "Commands": [str(c.manifest.get("command", "")) for c in cells],
    }
    if found.unfinished:
        made["Not finished"] = [f"{folder}: {why}" for folder, why in found.unfinished.items()]
    return made | {"Cells": [_row(cell) for cell in cells]}


def cards(found: Found, note: str = "") -> Section:
    """The fidelity cards of results, with what was varied of them; ``note`` says it of claims."""
    made = entries(ComparedCell(c.folder, c.summary, c.manifest) for c in found.cells)
    folders = [cell.folder.parent for cell in found.cells]
    return card_pages.section(made, comparisons(folders, (one["group"] for one in made)), note)


def _kinds(badges: Sequence[str]) -> str:
    if not badges:
        return UNMARKED
    words = {badge.partition(" ")[0] for badge in badges}
    return f"{words.pop() if len(words) == 1 else 'Simulated and measured results'}: {len(badges)} set-ups"


def _drawn_with() -> dict[str, str]:
    return {name: metadata.version(name) for name in ("jinja2", "matplotlib")}


def _unique(items: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for item in items:
        if dict(item) not in found:
            found.append(dict(item))
    return found


def _described(state: Mapping[str, Any]) -> dict[str, str]:
    if not state:
        return {"commit": "not a checkout"}
    return {"commit": f"{state['commit']}{' with changes' if state['dirty'] else ''}"}


def _row(cell: Cell) -> dict[str, Any]:
    summary, manifest = cell.summary, cell.manifest
    git = manifest.get("git", {})
    return {
        "cell": summary["cell"],
        "system": summary["system"],
        "workload": summary["workload"],
        "model": manifest["model"],
        "gpu": manifest["gpu"],
        "load": summary["load"],
        "seed": str(summary["seed"]),
        "trend": summary["trend"]["verdict"],
        "result hash": str(summary["result_hash"])[:16],
        "commit": f"{str(git.get('commit'))[:10]}{'+' if git.get('dirty') else ''}",
    }


__all__ = ["Section", "frames", "not_drawn", "provenance", "table_of", "write"]

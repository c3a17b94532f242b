"""Latency over rate, one panel per model and workload: shared by mean and tail curves.

Takes ``points`` (a row per cell) and reduces it to a curve table: ``model, workload, system, rate,
statistic, value, low, high, seeds, sustained, multiple, top``, one row per mark; ``top`` is where the
panel's axis ends, so ``value > top`` is drawn as an arrow.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from reports import theme
from reports.numbers import bare, bounded, number
from reports.seeds import over_seeds

if TYPE_CHECKING:
    from matplotlib.figure import Figure

KEYS = ("model", "workload", "system", "rate")
PAPER_TOP = 1.0
"""Where the axis of Autellix's Fig. 12 and 13 ends (s/token)."""
HOLLOW = "hollow: not sustained"
VERDICTS = {"reproduced": "✓", "partly": "~", "not reproduced": "✗"}
CLAIMS_SHOWN = 4


def distinct(frame: pd.DataFrame, column: str) -> list[Any]:
    """Values of a column in order of first appearance."""
    return list(dict.fromkeys(frame[column].tolist()))


def some(values: Sequence[float], most: int) -> list[float]:
    """At most ``most`` of the sorted values, evenly spaced, the last one among them."""
    found = sorted(set(values))
    if len(found) <= most:
        return found
    return [found[i] for i in np.linspace(0, len(found) - 1, most).round().astype(int)]


def one_rate(points: pd.DataFrame) -> str:
    """Why there is no curve; empty where some system has two rates."""
    rated = points[np.isfinite(points.rate)]
    if rated.empty:
        return "no arrival rate (closed loop or recorded times)"
    most = rated.groupby(["model", "workload", "system"]).rate.nunique().max()
    return "" if most > 1 else "one rate only: a curve needs two"


def curve_table(points: pd.DataFrame, columns: Mapping[str, str], paper: bool) -> pd.DataFrame:
    """``columns``: statistic -> column of ``points``. ``paper``: the axis ends at 1 s/token everywhere."""
    rated = points[np.isfinite(points.rate)]
    parts = []
    for statistic, column in columns.items():
        means = over_seeds(rated, KEYS, column)
        shares = over_seeds(rated.assign(share=rated.sustainable.astype(float)), KEYS, "share")
        means.insert(4, "statistic", statistic)
        means["sustained"] = shares["value"]
        means["multiple"] = _multiple(rated, means)
        parts.append(means)
    table = pd.concat(parts, ignore_index=True)
    table = table[np.isfinite(table["value"].astype(float))].reset_index(drop=True)
    tops = {k: PAPER_TOP if paper else _top(p) for k, p in table.groupby(["model", "workload", "statistic"])}
    keys = zip(table.model, table.workload, table.statistic, strict=True)
    return table.assign(top=[tops[k] for k in keys])


def _multiple(points: pd.DataFrame, means: pd.DataFrame) -> list[float]:
    if "multiple" not in points:
        return [math.nan] * len(means)
    found = points.groupby(["model", "workload", "rate"]).multiple.median()
    return [float(found[m, w, r]) for m, w, r in zip(means.model, means.workload, means.rate, strict=True)]


def _top(rows: pd.DataFrame) -> float:
    """Axis end that shows the bulk: one overloaded point must not flatten all others."""
    ends = np.fmax(rows["value"], rows.high).to_numpy(dtype=float)
    return float(1.05 * min(ends.max(), 6 * np.median(rows["value"]))) or 1.0


def panel_rows(table: pd.DataFrame) -> list[tuple[str, str]]:
    """(model, statistic) of each row of panels."""
    return [(m, s) for m in distinct(table, "model") for s in distinct(table, "statistic")]


def paint(
    table: pd.DataFrame, label: str, claims: pd.DataFrame | None, axes_of_paper: pd.DataFrame | None
) -> Figure:
    """The panels. ``label``: the y axis, units included, ``{}`` where the statistic goes."""
    rows, workloads = panel_rows(table), distinct(table, "workload")
    systems = theme.marks(table.system)
    same = table.groupby(["model", "statistic"]).top.nunique().max() == 1
    below = 0.0 if claims is None else 0.12 * (1 + min(CLAIMS_SHOWN + 1, _most_claims(claims)))
    size = (theme.PANEL[0], theme.PANEL[1] + below)
    fig, axes = theme.panels(len(rows), len(workloads), share_y=bool(same), size=size)
    shown = {"arrow": False, "hollow": False, "band": False, "saturation": False}
    for i, (model, statistic) in enumerate(rows):
        for j, workload in enumerate(workloads):
            ax = axes[i, j]
            here = table[
                (table.model == model) & (table.workload == workload) & (table.statistic == statistic)
            ]
            if here.empty:
                ax.set_axis_off()
                continue
            _panel(ax, here, systems, shown)
            shown["band"] |= _band(ax, axes_of_paper, model, workload)
            theme.name_panel(ax, workload, model)
            if j == 0 or not same:
                ax.set_ylabel(label.format(statistic))
            ax.set_xlabel("arrival rate (programs/s)")
            if claims is not None:
                _claims(ax, claims[(claims.workload == workload) & (claims.model == model)])
    theme.legend(fig, systems, _notes(shown))
    return fig


def _panel(ax: Any, rows: pd.DataFrame, systems: Mapping[str, theme.Mark], shown: dict[str, bool]) -> None:
    top = float(rows.top.iloc[0])
    here = [s for s in systems if s in set(rows.system)]
    step = 0.012 * float(rows.rate.max())
    for k, system in enumerate(here):
        line = rows[rows.system == system].sort_values("rate")
        arrows, hollow = draw_line(ax, line, systems[system], top, (k - (len(here) - 1) / 2) * step)
        shown["arrow"] |= arrows
        shown["hollow"] |= hollow
    ax.set_ylim(0, top)
    ax.set_xlim(0, 1.07 * float(rows.rate.max()))
    if top == PAPER_TOP:
        ax.set_yticks([0, 0.25, 0.5, 0.75, 1.0])
    at = (rows.rate / rows.multiple).median()
    if math.isfinite(at):
        ax.axvline(at, color=theme.GREY, linewidth=0.9, linestyle=(0, (1, 2)), zorder=1)
        shown["saturation"] = True


def draw_line(ax: Any, line: pd.DataFrame, mark: theme.Mark, top: float, shift: float) -> tuple[bool, bool]:
    """A system's line with intervals; hollow: not sustained; an arrow, moved by ``shift``: off the axis."""
    style = {"color": mark.color, "linestyle": mark.dash}
    ax.plot(line.rate, line["value"], **style, linewidth=mark.width, zorder=2)
    inside = line[line["value"] <= top]
    error = np.vstack([inside["value"] - inside.low, inside.high - inside["value"]]).astype(float)
    ax.errorbar(inside.rate, inside["value"], yerr=np.nan_to_num(error), fmt="none", ecolor=mark.color,
                elinewidth=0.9, capsize=2, zorder=2.5)  # fmt: skip
    hollow = inside.sustained <= 0.5
    for part, face in ((inside[~hollow], mark.color), (inside[hollow], "white")):
        ax.plot(part.rate, part["value"], linestyle="none", marker=mark.marker, color=mark.color,
                markersize=mark.size, markerfacecolor=face, markeredgewidth=1.0, zorder=3)  # fmt: skip
    beyond = line[line["value"] > top]
    for rate in beyond.rate:
        ax.annotate("", xy=(rate + shift, top), xytext=(rate + shift, 0.9 * top), annotation_clip=False,
                    arrowprops={"arrowstyle": "-|>", "color": mark.color, "linewidth": 1.0,
                                "linestyle": mark.dash, "shrinkA": 0, "shrinkB": 0})  # fmt: skip
    return bool(len(beyond)), bool(hollow.any())


def _band(ax: Any, paper: pd.DataFrame | None, model: str, workload: str) -> bool:
    """The range of the paper's x axis, where it is known for this panel."""
    if paper is None or paper.empty:
        return False
    rows = paper[(paper.model == model) & (paper.workload == workload)]
    for low, high in zip(rows.low, rows.high, strict=True):
        ax.axvspan(float(low), float(high), color=theme.BAND, zorder=0, linewidth=0)
    return bool(len(rows))


def _most_claims(claims: pd.DataFrame) -> int:
    return int(claims.groupby(["workload", "model"]).size().max())


def _claims(ax: Any, claims: pd.DataFrame) -> None:
    """The stated value beside ours, below the panel; the paper's claims before the note's."""
    rows = claims.sort_values("source", ascending=False, kind="stable")
    texts = [_claim(row) for row in rows.head(CLAIMS_SHOWN).to_dict("records")]
    if len(rows) > CLAIMS_SHOWN:
        texts.append(f"and {len(rows) - CLAIMS_SHOWN} more in the table of verdicts")
    if texts:
        ax.annotate("\n".join(texts), (0, 0), (0, -31), xycoords="axes fraction", textcoords="offset points",
                    fontsize=6, va="top", linespacing=1.35)  # fmt: skip


def _claim(row: Mapping[str, Any]) -> str:
    got, expected = row["got"], row["expected"]
    here = bounded(got, row.get("low"), row.get("high")) if isinstance(got, float | int) else str(got)
    stated = number(expected) if isinstance(expected, float | int) else str(expected)
    words = [_sign(row.get(kind)) for kind in ("transient", "sustained")]
    ending = f"  {words[0]} | {words[1]}" if any(w != "n/a" for w in words) else ""
    return f"{row['quantity']}: {row['source']} {stated}, here {here}{ending}"


def _sign(verdict: Any) -> str:
    """A verdict as a sign, in brackets where few seeds stand behind it."""
    word, few = bare(str(verdict or ""))
    sign = VERDICTS.get(word, "n/a")
    return f"({sign})" if few else sign


def _notes(shown: Mapping[str, bool]) -> list[tuple[Any, str]]:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    grey: dict[str, Any] = {"color": theme.GREY, "linestyle": "none"}
    notes: dict[str, tuple[Any, str]] = {
        "hollow": (Line2D([], [], marker="o", markerfacecolor="white", **grey), HOLLOW),
        "arrow": (Line2D([], [], marker="^", **grey), "beyond the axis: CSV"),
        "saturation": (Line2D([], [], color=theme.GREY, linestyle=(0, (1, 2))), "vllm-opt saturates"),
        "band": (Patch(color=theme.BAND), "the paper's x axis"),
    }
    return [notes[name] for name, there in shown.items() if there]

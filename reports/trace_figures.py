"""The figures of ``bench trace stats --html``; frames are those of ``bench.trace_page``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from reports import theme
from reports.figure import Data, Figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

DATA, OTHER, BEST = "#0072b2", "#d55e00", "#000000"
LAW_LOOKS: Mapping[str, tuple[str, Any]] = {
    "lognormal": ("#e69f00", "--"),
    "weibull": ("#009e73", "-."),
    "Pareto tail": ("#d55e00", ":"),
}
COLUMNS = 4


def _grid(n: int) -> tuple[Canvas, list[Any]]:
    columns = min(COLUMNS, n)
    fig, axes = theme.panels(-(-n // columns), columns, share_y=False)
    flat = list(axes.flat)
    for ax in flat[n:]:
        ax.set_axis_off()
    return fig, flat


def _survival_axes(ax: Any, least: float, span: float) -> None:
    """Logarithmic axes for shares down to ``least``, over values that span a factor."""
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

    ax.set_yscale("log")
    ax.set_ylim(max(1e-6, 0.5 * least), 1.5)
    ax.yaxis.set_major_locator(LogLocator(numticks=6))
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    subs = (1, 2, 5) if span < 50 else (1,)
    ax.xaxis.set_major_locator(MaxNLocator(4) if span < 4 else LogLocator(subs=subs, numticks=6))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: _short(value)))
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_minor_formatter(NullFormatter())


def _lengths(data: Data) -> pd.DataFrame:
    """Data and laws, one row a point."""
    laws = data.get("laws")
    seen = data["lengths"].assign(law="data")
    return seen if laws is None or laws.empty else pd.concat([seen, laws], ignore_index=True)


def _paint_lengths(_: Data, table: pd.DataFrame) -> Canvas:
    from matplotlib.lines import Line2D

    names = list(dict.fromkeys(table.quantity))
    fig, axes = _grid(len(names))
    for ax, name in zip(axes, names, strict=False):
        rows = table[table.quantity == name]
        seen = rows[rows.law == "data"]
        ax.step(seen.x, seen.share, where="pre", color=DATA, linewidth=1.6)
        if len(seen) < 40:
            ax.plot(seen.x, seen.share, ".", color=DATA, markersize=4)
        for law, (color, dash) in LAW_LOOKS.items():
            line = rows[(rows.law == law) & (rows.share > 0)]
            ax.plot(line.x, line.share, color=color, linestyle=dash, linewidth=1.1)
        ax.set_xscale("log")
        _survival_axes(ax, float(seen.share.min()), float(seen.x.max() / seen.x.min()))
        ax.set_title(name)
        ax.set_ylabel("share at least this")
    drawn = [law for law in LAW_LOOKS if (table.law == law).any()]
    handles = [Line2D([], [], color=DATA, linewidth=1.6)]
    handles += [Line2D([], [], color=LAW_LOOKS[law][0], linestyle=LAW_LOOKS[law][1]) for law in drawn]
    fig.legend(handles, ["data", *drawn], loc="outside upper center", ncols=4)
    return fig


def _paint_arrivals(_: Data, table: pd.DataFrame) -> Canvas:
    fig, (left, right) = _grid(2)
    curves = {name: table[table.curve == name] for name in ("cumulative", "gap", "poisson")}
    left.plot(curves["cumulative"].x, curves["cumulative"].y, color=DATA)
    ends = curves["cumulative"].iloc[[0, -1]]
    left.plot(ends.x, ends.y, color=theme.GREY, linestyle="--", linewidth=0.9)
    left.set_xlabel("seconds")
    left.set_ylabel("programs that arrived")
    left.set_title("arrivals (dashed: a constant rate)")
    right.step(curves["gap"].x, curves["gap"].y, where="pre", color=DATA, label="data")
    right.plot(curves["poisson"].x, curves["poisson"].y, color=OTHER, linestyle="--", label="Poisson")
    right.set_xscale("log")
    _survival_axes(right, float(curves["gap"].y.min()), float(curves["gap"].x.max() / curves["gap"].x.min()))
    right.set_xlabel("seconds between arrivals")
    right.set_ylabel("share at least this")
    right.set_title("gaps")
    right.legend(loc="lower left")
    return fig


def _paint_prefix(_: Data, table: pd.DataFrame) -> Canvas:
    fig, (ax,) = _grid(1)
    fig.set_size_inches(5.4, 3.4)
    x = np.arange(len(table))
    looks = {"own": (DATA, "o", "-", "own program"), "others": (OTHER, "s", "--", "other programs"),
             "optimum": (BEST, "x", ":", "both (optimum)")}  # fmt: skip
    for name, (color, marker, dash, label) in looks.items():
        ax.plot(x, 100 * table[name], color=color, marker=marker, linestyle=dash, label=label)
    ax.set_xticks(x, [f"{v / 1024:g}k" if v >= 1024 else f"{v:g}" for v in table.up_to], rotation=30)
    ax.set_ylim(0, 103)
    ax.set_xlabel("prompt tokens, up to")
    ax.set_ylabel("prefix hits (% of prompt tokens)")
    fig.legend(loc="outside upper center", ncols=3)
    return fig


def _short(tokens: float) -> str:
    """1,000 as 1k."""
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if tokens >= size:
            return f"{tokens / size:.3g}{letter}"
    return f"{tokens:g}"


def _paint_residual(_: Data, table: pd.DataFrame) -> Canvas:
    names = list(dict.fromkeys(table.quantity))
    fig, axes = _grid(2 * len(names))
    for i, name in enumerate(names):
        rows = table[table.quantity == name]
        left, right = axes[2 * i], axes[2 * i + 1]
        left.errorbar(rows.age, rows.mean_left, yerr=1.96 * rows.error, color=DATA, marker="o", capsize=2)
        left.axhline(float(rows.mean_left.iloc[0]), color=theme.GREY, linestyle="--", linewidth=0.9)
        left.set_ylim(bottom=0)
        left.set_xlabel(f"{name} received")
        left.set_ylabel(f"{name} left (mean)")
        left.set_title(f"residual life: {rows.verdict.iloc[0]}")
        ends = [*rows.age.iloc[1:], rows.age.iloc[-1]]
        right.step(ends, 100 * rows.hazard, where="pre", color=OTHER, marker="o", markersize=3)
        right.set_ylim(0, 103)
        right.set_xlabel(f"{name}, up to")
        right.set_ylabel("end before (% of those alive)")
        right.set_title("hazard between the rows")
    return fig


FIGURES = (
    Figure(
        name="trace_lengths",
        title="Lengths and times",
        needs=("lengths",),
        uses=("laws",),
        caption="Share of the values at least as large, both axes logarithmic, with laws fitted by maximum "
        "likelihood: a straight line would be a power law. Values of 0 are left out.",
        tabulate=_lengths,
        paint=_paint_lengths,
    ),
    Figure(
        name="trace_prefix",
        title="Prefix hits against prompt length",
        needs=("prefix",),
        caption="Prompt tokens an infinite cache holds, in whole 16-token blocks: left by earlier calls of "
        "the same program, by the programs before it, and the better of the two (compare Autellix, Fig. 7). "
        "Bins weigh by tokens.",
        tabulate=lambda data: data["prefix"].drop(columns="badge"),
        paint=_paint_prefix,
    ),
    Figure(
        name="trace_residual",
        title="What is left of a program that got this far",
        needs=("residual",),
        caption="Mean residual life with 95 % intervals, and the share of programs that end before the next "
        "row. Falling: who got far is nearly done, an argument against least attained service; rising: for.",
        tabulate=lambda data: data["residual"].drop(columns="badge"),
        paint=_paint_residual,
    ),
    Figure(
        name="trace_arrivals",
        title="Arrivals",
        needs=("arrivals",),
        caption="Recorded arrivals of programs over time, and the gaps between them next to those of Poisson "
        "arrivals at the same mean rate. Gaps of 0 are left out of the curve, not of its shares.",
        tabulate=lambda data: data["arrivals"].drop(columns="badge"),
        paint=_paint_arrivals,
    ),
)

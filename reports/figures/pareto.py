"""Throughput against latency, and which points nothing beats in both."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from reports import theme
from reports.curves import HOLLOW
from reports.figure import Data, Figure
from reports.loads import panels_of_sets, places
from reports.seeds import over_seeds

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

RATE = "measured.programs_per_s"
LATENCY = ("program.s_per_token.mean_of_ratios", "transient.mean_of_ratios")


def tabulate(data: Data) -> pd.DataFrame:
    """One row per system and load: programs/s, s/token, both with intervals; ``front``: not dominated."""
    points = data["points"]
    keys = ["model", "workload", "system", *(["load"] if "load" in points else []), "rate"]
    latency = next(name for name in LATENCY if name in points)
    table = over_seeds(points, keys, latency)
    for name, column in (("throughput", RATE), ("share", "sustainable")):
        other = over_seeds(points.assign(sustainable=points.sustainable.astype(float)), keys, column)
        for ending in ("value", "low", "high"):
            table[f"{name}_{ending}"] = other[ending]
    table = table.rename(columns={"share_value": "sustained"}).drop(columns=["share_low", "share_high"])
    table = table[np.isfinite(table["value"]) & np.isfinite(table.throughput_value)].reset_index(drop=True)
    table["front"] = False
    for _, part in table.groupby(["model", "workload"]):
        table.loc[part.index, "front"] = front(part.throughput_value.tolist(), part["value"].tolist())
    return table


def front(throughput: list[float], latency: list[float]) -> list[bool]:
    """Whether no other point has at least the throughput at no more latency, one of them strictly better."""
    points = list(zip(throughput, latency, strict=True))
    return [
        not any((x >= a and y <= b) and (x > a or y < b) for x, y in points) for a, b in points
    ]  # fmt: skip


def paint(_: Data, table: pd.DataFrame) -> Canvas:
    """A panel per workload and model; latency is logarithmic, it spans decades past saturation."""
    from matplotlib.lines import Line2D

    systems = theme.marks(table.system)
    fig, panels = panels_of_sets(table)
    for (workload, model), ax in panels.items():
        here = table[(table.model == model) & (table.workload == workload)]
        _panel(ax, here, systems, (workload, model))
    notes: list[tuple[Any, str]] = [(Line2D([], [], color="#c0c0c0", linewidth=4), "Pareto front")]
    if (table.sustained < 0.5).any():
        hollow = Line2D([], [], color=theme.GREY, linestyle="none", marker="o", markerfacecolor="white")
        notes.append((hollow, HOLLOW))
    theme.legend(fig, systems, notes)
    return fig


def _panel(ax: Any, rows: pd.DataFrame, systems: dict[str, theme.Mark], title: tuple[str, str]) -> None:
    best = rows[rows.front].sort_values("throughput_value")
    ax.plot(best.throughput_value, best["value"], color="#c0c0c0", linewidth=5, zorder=1,
            solid_capstyle="round", drawstyle="steps-pre", alpha=0.7)  # fmt: skip
    for system, mark in systems.items():
        line = rows[rows.system == system]
        line = line.assign(place=places(line)).sort_values(["place", "throughput_value"])
        ax.plot(line.throughput_value, line["value"], color=mark.color, linestyle=mark.dash,
                linewidth=mark.width, zorder=2)  # fmt: skip
        x = np.nan_to_num(
            np.vstack(
                [line.throughput_value - line.throughput_low, line.throughput_high - line.throughput_value]
            )
        )
        y = np.nan_to_num(np.vstack([(line["value"] - line.low).clip(upper=0.9 * line["value"]),
                                     line.high - line["value"]]))  # fmt: skip
        ax.errorbar(line.throughput_value, line["value"], xerr=x, yerr=y, fmt="none", ecolor=mark.color,
                    elinewidth=0.7, zorder=2.2)  # fmt: skip
        for full in (True, False):
            part = line[(line.sustained >= 0.5) == full]
            ax.plot(part.throughput_value, part["value"], linestyle="none", marker=mark.marker,
                    color=mark.color, markersize=mark.size,
                    markerfacecolor=mark.color if full else "white", zorder=3)  # fmt: skip
    ax.set_yscale("log")
    theme.plain_numbers(ax.yaxis)
    ax.set_xlim(0, 1.15 * float(rows.throughput_value.max()) or 1.0)
    ax.set_ylim(bottom=0.6 * float(rows["value"].min()))
    theme.name_panel(ax, *title)
    ax.set_xlabel("throughput in [.2 H, H] (programs/s)")
    ax.set_ylabel("mean latency (s/token)")


FIGURE = Figure(
    name="pareto",
    title="Throughput against latency",
    needs=("points",),
    caption="Programs that end in [.2 H, H] per second of it, against the mean over programs of response "
    "time over output tokens; one mark per load, means over seeds with 95 % t intervals. Better is right and "
    "down. The grey steps join the loads that no system beats in both.",
    tabulate=tabulate,
    paint=paint,
)

"""Where a program's time goes: waiting, execution by kind, tools (Autellix, Fig. 5 and 17)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from reports import theme
from reports.curves import distinct, some
from reports.figure import Data, Figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

PARTS = {
    "wait_s": ("wait", "#d55e00", ""),
    "prefill_s": ("prefill", "#0072b2", ""),
    "reprefill_s": ("re-prefill", "#7fb8d8", "xxx"),
    "decode_s": ("decode", "#b5dcf0", ""),
    "swap_s": ("swap", "#009e73", "+++"),
    "tool_s": ("tools", "#dddddd", "..."),
    "think_s": ("people", "#f5f5f5", "///"),
    "overhead_s": ("other", "#333333", ""),
}
"""Column -> name, colour, hatch: neighbours differ in lightness or in hatch."""
RATES_SHOWN = 2
BAR = 0.17
"""Height of a bar (inches)."""


def tabulate(data: Data) -> pd.DataFrame:
    """The frame as it is, with ``total_s`` and whether the row is in the picture."""
    rows = data["split"]
    rows = rows.assign(path=rows.get("path", "all calls"))
    there = [c for c in PARTS if c in rows]
    rows = rows[np.isfinite(rows[there].astype(float)).all(axis=1)].reset_index(drop=True)
    drawn = pd.Series(True, index=rows.index)
    for _, part in rows.groupby(["model", "workload"]):
        if np.isfinite(part.rate).all():
            drawn.loc[part.index] = part.rate.isin(some(part.rate.tolist(), RATES_SHOWN))
    return rows.assign(total_s=rows[there].sum(axis=1), drawn=drawn)


def paint(_: Data, table: pd.DataFrame) -> Canvas:
    """Columns are workloads (and models), rows the two readings; a bar per system and rate."""
    table = table[table.drawn]
    sets = list(dict.fromkeys(zip(table.workload, table.model, strict=True)))
    paths = distinct(table, "path")
    most = max(len(part) for _, part in table.groupby(["workload", "model", "path"]))
    fig, axes = theme.panels(len(paths), len(sets), share_y=False, size=(3.1, BAR * most + 0.75))
    for i, path in enumerate(paths):
        for j, (workload, model) in enumerate(sets):
            here = table[(table.workload == workload) & (table.model == model) & (table.path == path)]
            _panel(axes[i, j], here)
            theme.name_panel(axes[i, j], workload, model, path)
    _legend(fig, [c for c in PARTS if c in table and table[c].fillna(0.0).any()])
    return fig


def _panel(ax: Any, rows: pd.DataFrame) -> None:
    place = {name: i for i, name in enumerate(theme.ordered(rows.system))}
    rows = rows.assign(place=rows.system.map(place)).sort_values(["rate", "place"]).reset_index(drop=True)
    gaps = rows.rate.ne(rows.rate.shift()).cumsum().to_numpy() * 0.5  # a gap between rates
    y = rows.index.to_numpy() + gaps
    left = np.zeros(len(rows))
    for column, (_, color, hatch) in PARTS.items():
        if column in rows:
            width = rows[column].fillna(0.0).to_numpy(dtype=float)
            ax.barh(
                y, width, left=left, height=0.8, color=color, hatch=hatch, edgecolor="#222222", linewidth=0.4
            )
            left = left + width
    ax.set_xlim(0, 1.04 * float(rows.total_s.max()) or 1.0)
    ax.set_yticks(
        y, [f"{s}  {r:g}/s" if np.isfinite(r) else s for s, r in zip(rows.system, rows.rate, strict=True)]
    )
    ax.tick_params(axis="y", length=0, labelsize=6.5)
    ax.grid(False, axis="y")
    ax.invert_yaxis()
    ax.set_xlabel("mean per finished program (s)")


def _legend(fig: Any, columns: list[str]) -> None:
    from matplotlib.patches import Patch

    parts = [PARTS[c] for c in columns]
    handles = [Patch(facecolor=c, hatch=h, edgecolor="#222222", linewidth=0.4, label=n) for n, c, h in parts]
    room = max(3, int(fig.get_figwidth() / 1.0))
    fig.set_figheight(fig.get_figheight() + theme.LINE * math.ceil(len(handles) / room))
    fig.legend(handles=handles, loc="outside upper center", ncols=min(len(handles), room))


FIGURE = Figure(
    name="time_split",
    title="Where a program's time goes",
    needs=("split",),
    caption="Means per finished program, seeds averaged. All calls: sums over a program's calls, concurrent "
    "ones too, so bars may exceed the response time. Critical path: the chain of calls, tools and people "
    "that decided the program's end, which sums to its response. Re-prefill and swap: what preemption costs.",
    tabulate=tabulate,
    paint=paint,
)

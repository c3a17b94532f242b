"""Where a program's time goes: waiting, execution by kind, tools (Autellix, Fig. 5 and 17)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from reports import labels, theme
from reports.curves import distinct, some
from reports.figure import Data, Figure
from reports.loads import places

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
        sizes = places(part)
        drawn.loc[part.index] = sizes.isin(some(sizes.tolist(), RATES_SHOWN))
    return rows.assign(total_s=rows[there].sum(axis=1), drawn=drawn)


def paint(_: Data, table: pd.DataFrame) -> Canvas:
    """Columns are workloads (and models), rows the two readings; a bar per system and load."""
    table = table[table.drawn]
    sets = list(dict.fromkeys(zip(table.workload, table.model, strict=True)))
    paths = distinct(table, "path")
    most = max(len(part) for _, part in table.groupby(["workload", "model", "path"]))
    ticks = labels.ticks(theme.ordered(table.system))
    size = (2.6 + ticks.width, ticks.bar(BAR) * most + 0.75)
    fig, axes = theme.panels(len(paths), len(sets), share_y=False, size=size)
    for i, path in enumerate(paths):
        for j, (workload, model) in enumerate(sets):
            here = table[(table.workload == workload) & (table.model == model) & (table.path == path)]
            _panel(axes[i, j], here, ticks)
            theme.name_panel(axes[i, j], workload, model, path)
    _legend(fig, [c for c in PARTS if c in table and table[c].fillna(0.0).any()])
    labels.key(fig, ticks, theme.FOOT)
    return fig


def _panel(ax: Any, rows: pd.DataFrame, ticks: labels.Ticks) -> None:
    place = {name: i for i, name in enumerate(theme.ordered(rows.system))}
    rows = rows.assign(place=rows.system.map(place), size=places(rows))
    rows = rows.sort_values(["size", "place"]).reset_index(drop=True)
    size = rows["size"]
    gaps = size.ne(size.shift()).cumsum().to_numpy() * 0.5  # a gap between loads
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
    several = size.nunique() > 1 or np.isfinite(rows.rate).any()
    ends = [_load(rate, n) if several else "" for rate, n in zip(rows.rate, size, strict=True)]
    ax.set_yticks(y, [ticks.text[s] + end for s, end in zip(rows.system, ends, strict=True)])
    ax.tick_params(axis="y", length=0, labelsize=6.5)
    ax.grid(False, axis="y")
    ax.invert_yaxis()
    ax.set_xlabel("mean per finished program (s)")


def _load(rate: float, size: float) -> str:
    return f"  {rate:g}/s" if np.isfinite(rate) else f"  at {size:g}"


def _legend(fig: Any, columns: list[str]) -> None:
    from matplotlib.patches import Patch

    parts = [PARTS[c] for c in columns]
    handles = [Patch(facecolor=c, hatch=h, edgecolor="#222222", linewidth=0.4) for _, c, h in parts]
    theme.above(fig, handles, [name for name, _, _ in parts])


FIGURE = Figure(
    name="time_split",
    title="Where a program's time goes",
    needs=("split",),
    caption="Means per finished program, seeds averaged. All calls: sums over a program's calls, concurrent "
    "ones too, so bars may exceed the response time. Critical path: the chain of calls, tools and people "
    'that decided the program\'s end, which sums to its response. At most two loads are drawn ("at 24": 24 '
    "programs at a time). Re-prefill and swap: what preemption costs.",
    tabulate=tabulate,
    paint=paint,
)

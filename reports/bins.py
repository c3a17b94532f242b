"""Wait over execution in bins: shared by the figures over calls and over programs.

Frames have ``model, workload, system, rate, bin_low, bin_high, n, ratio, low, high`` and may have ``load``
(in words; what tells loads apart that have no rate) and ``centre``, the mean of what is in the bin (of a bin
of long tail, far from its middle).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from reports import theme
from reports.curves import some
from reports.loads import places

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

    from reports.figure import Data

RATES_SHOWN = 2


def tabulate(data: Data, name: str) -> pd.DataFrame:
    """Every bin of every load; ``place``: its rate or programs at a time; ``drawn``: in the picture."""
    rows = data[name]
    rows = rows[np.isfinite(rows.ratio.astype(float))].reset_index(drop=True)
    if "centre" not in rows:
        rows = rows.assign(centre=(rows.bin_low + rows.bin_high) / 2)
    rows = rows.assign(place=places(rows))
    drawn = pd.Series(False, index=rows.index)
    for _, part in rows.groupby(["model", "workload"]):
        drawn.loc[part.index] = part.place.isin(some(part.place.tolist(), RATES_SHOWN))
    return rows.assign(drawn=drawn)


def paint(_: Data, table: pd.DataFrame, label: str) -> Canvas:
    """Columns are workloads (and models), rows the lowest and the highest load."""
    table = table[table.drawn]
    sets = list(dict.fromkeys(zip(table.workload, table.model, strict=True)))
    groups = {k: table[(table.workload == k[0]) & (table.model == k[1])] for k in sets}
    found = {k: sorted(part.place.unique()) for k, part in groups.items()}
    systems = theme.marks(table.system)
    fig, axes = theme.panels(max(map(len, found.values())), len(sets), share_y=False)
    for j, key in enumerate(sets):
        for i in range(axes.shape[0]):
            if i >= len(found[key]):
                axes[i, j].set_axis_off()
                continue
            part = groups[key][groups[key].place == found[key][i]]
            _panel(axes[i, j], part, systems, label)
            theme.name_panel(axes[i, j], *key, _load(part))
    theme.legend(fig, systems)
    return fig


def _load(rows: pd.DataFrame) -> str:
    """The load of a panel in words."""
    rate = float(rows.rate.iloc[0])
    if np.isfinite(rate):
        return f"{rate:g} programs/s"
    return str(rows.load.iloc[0]) if "load" in rows else "no arrival rate"


def _panel(ax: Any, rows: pd.DataFrame, systems: dict[str, theme.Mark], label: str) -> None:
    for system, mark in systems.items():
        line = rows[rows.system == system].sort_values("bin_low")
        x = np.vstack([line.centre - line.bin_low, line.bin_high - line.centre]).clip(min=0)
        y = np.nan_to_num(np.vstack([line.ratio - line.low, line.high - line.ratio]).astype(float)).clip(
            min=0
        )
        ax.errorbar(line.centre, line.ratio, xerr=x, yerr=y, fmt="none", ecolor=mark.color, elinewidth=0.7,
                    alpha=0.45)  # fmt: skip
        ax.plot(line.centre, line.ratio, color=mark.color, linestyle=mark.dash, marker=mark.marker,
                markersize=mark.size, linewidth=mark.width)  # fmt: skip
    if rows.bin_low.min() > 0 and rows.bin_high.max() > 10 * rows.bin_low.min():
        ax.set_xscale("log")
        theme.plain_numbers(ax.xaxis)
    ax.set_ylim(bottom=0)
    ax.set_xlabel(label)
    ax.set_ylabel("wait / exec")

"""What KV was used for: useful work, the same again, programs that are away (ThunderAgent, section 3)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from reports import labels, theme
from reports.figure import Data, Figure
from reports.loads import drawn, sets

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

PARTS = {
    "decode": ("#b5dcf0", ""),
    "prefill": ("#0072b2", ""),
    "recompute": ("#d55e00", "xxx"),
    "caching": ("#f0e442", "..."),
    "unused": ("#f5f5f5", "///"),
}
"""Part -> colour, hatch: useful work is blue."""
KEYS = ["workload", "model", "load", "system"]
BAR = 0.19
"""Height of a bar (inches)."""


def tabulate(data: Data) -> pd.DataFrame:
    """Means over seeds: shares of the capacity, bounds of caching, token-seconds per step."""
    rows = data["kv_costs"]
    numbers = [c for c in rows if c in PARTS or c.startswith("caching_") or c.endswith("_per_step")]
    rows = rows[np.isfinite(rows[numbers].astype(float)).all(axis=1)]
    table = rows.groupby(KEYS, sort=False)[numbers].mean().reset_index()
    return drawn(table) if len(table) else table


def paint(_: Data, table: pd.DataFrame) -> Canvas:
    """A row per workload, model and load: shares of the capacity, and what a step cost."""
    groups = sets(table[table.drawn])
    names = theme.ordered(table[table.drawn].system)
    ticks, order = labels.ticks(names), {name: k for k, name in enumerate(names)}
    heights = [ticks.bar(BAR) * len(rows) + 0.85 for rows in groups.values()]
    size = (3.1 + ticks.width / 2, 0.0)
    fig, axes = theme.panels(len(groups), 2, share_y=False, size=size, heights=heights)
    for i, (where, rows) in enumerate(groups.items()):
        rows = rows.sort_values("system", key=lambda found: found.map(order))
        _shares(axes[i, 0], rows, ticks)
        _per_step(axes[i, 1], rows)
        theme.name_panel(axes[i, 0], *where)
    _legend(fig)
    labels.key(fig, ticks, theme.FOOT)
    return fig


def _shares(ax: Any, rows: pd.DataFrame, ticks: labels.Ticks) -> None:
    _bars(ax, rows, {part: 100 * rows[part] for part in PARTS})
    before = rows[["decode", "prefill", "recompute"]].sum(axis=1)
    middle, low, high = (100 * (before + rows[name]) for name in ("caching", "caching_low", "caching_high"))
    ends = np.vstack([middle - low, high - middle]).clip(min=0)
    ax.errorbar(
        middle, np.arange(len(rows)), xerr=ends, fmt="none", ecolor="#222222", elinewidth=1.0, capsize=2
    )
    ax.set_xlim(0, 100)
    ax.set_yticks(np.arange(len(rows)), [ticks.text[name] for name in rows.system])
    ax.set_xlabel("% of KV capacity x time")


def _per_step(ax: Any, rows: pd.DataFrame) -> None:
    _bars(ax, rows, {part: rows[f"{part}_per_step"] / 1000 for part in PARTS})
    ax.set_yticks(np.arange(len(rows)), [""] * len(rows))
    ax.set_xlabel("1,000 token-seconds per step")


def _bars(ax: Any, rows: pd.DataFrame, widths: dict[str, pd.Series]) -> None:
    left = np.zeros(len(rows))
    for part, (color, hatch) in PARTS.items():
        width = widths[part].to_numpy(dtype=float)
        ax.barh(np.arange(len(rows)), width, left=left, height=0.78, color=color, hatch=hatch,
                edgecolor="#222222", linewidth=0.4)  # fmt: skip
        left = left + width
    ax.tick_params(axis="y", length=0, labelsize=6.5)
    ax.grid(False, axis="y")
    ax.invert_yaxis()


def _legend(fig: Any) -> None:
    from matplotlib.patches import Patch

    handles: list[Any] = [
        Patch(facecolor=c, hatch=h, edgecolor="#222222", linewidth=0.4) for c, h in PARTS.values()
    ]
    theme.above(fig, handles, list(PARTS))


FIGURE = Figure(
    name="kv_costs",
    title="What KV was used for",
    needs=("kv_costs",),
    caption="Token-seconds of KV of all engines, each counted once, over the run; means over seeds. Decode "
    "and prefill are useful; recompute: prefill of what its program had in KV before and lost; caching: KV "
    "of programs that are in a tool or wait, an estimate between the whiskers, its bounds; unused: the rest. "
    "Right: the same per completed step (a call and its tool), so shorter bars are better.",
    tabulate=tabulate,
    paint=paint,
)

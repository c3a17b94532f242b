"""What each engine's KV holds over time, and how many calls wait there and at the door."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from reports import labels, theme
from reports.figure import Data, Figure
from reports.loads import size_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

SYSTEMS, ENGINES = 8, 3
"""At most so many rows and columns are drawn; the table has all."""
WIDTH = 3.4
"""Of a panel (inches)."""
USED, CACHED, WAITING, HELD = "#2f8fce", "#f0e442", "#000000", "#b33a00"
NUMBERS = ["minute", "used", "cached", "running", "waiting", "held"]
COLUMNS = ["workload", "model", "load", "system", "seed", "engine", *NUMBERS]


def tabulate(data: Data) -> pd.DataFrame:
    """Every sample; ``drawn``: the greatest load of the first workload."""
    rows = data["engines_over_time"][COLUMNS]
    rows = rows[np.isfinite(rows[NUMBERS].astype(float)).all(axis=1)].reset_index(drop=True)
    if rows.empty:
        return rows
    first = (rows.workload == rows.workload[0]) & (rows.model == rows.model[0])
    sizes = rows.load.map(size_of)
    systems = theme.ordered(rows[first].system)[:SYSTEMS]
    few = rows.engine.isin(sorted(set(rows.engine))[:ENGINES])
    return rows.assign(drawn=first & (sizes == sizes[first].max()) & rows.system.isin(systems) & few)


def paint(_: Data, table: pd.DataFrame) -> Canvas:
    """A row per system, a column per engine."""
    table = table[table.drawn]
    systems, engines = theme.ordered(table.system), sorted(set(table.engine))
    titles = {s: labels.wrap(s, WIDTH - 0.2, 8.5) for s in systems}
    lines = max(title.count("\n") for title in titles.values())
    size = (WIDTH, 1.55 + 0.14 * lines)
    fig, axes = theme.panels(len(systems), len(engines), share_y=False, size=size)
    most = max(1.0, float((table.waiting + table.running).max()), float(table.held.max()))
    for i, system in enumerate(systems):
        for j, engine in enumerate(engines):
            rows = table[(table.system == system) & (table.engine == engine)].sort_values("minute")
            _panel(axes[i, j], rows, most)
            axes[i, j].set_title(titles[system] + (f", engine {engine}" if len(engines) > 1 else ""))
            axes[i, j].set_xlim(0, max(0.1, float(table.minute.max())))
    _legend(fig)
    return fig


def _panel(ax: Any, rows: pd.DataFrame, most: float) -> None:
    used, cached = 100 * rows.used, 100 * rows.cached
    ax.fill_between(rows.minute, used, color=USED, linewidth=0)
    ax.fill_between(rows.minute, used, used + cached, color=CACHED, linewidth=0)
    ax.set_ylim(0, 100)
    ax.set_xlabel("time (min)")
    ax.set_ylabel("KV (%)")
    calls = ax.twinx()
    calls.plot(rows.minute, rows.running + rows.waiting, color=WAITING, linewidth=0.9)
    calls.plot(rows.minute, rows.held, color=HELD, linewidth=1.1, linestyle=(0, (2, 1)))
    calls.set_ylim(0, 1.05 * most)
    calls.set_xlabel("time (min)")
    calls.set_ylabel("number of calls")
    calls.spines["right"].set_visible(True)


def _legend(fig: Any) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    entries: dict[str, Any] = {
        "in use by calls": Patch(facecolor=USED),
        "free, with cached content": Patch(facecolor=CACHED),
        "calls in the engine": Line2D([], [], color=WAITING, linewidth=0.9),
        "calls at the door (all engines)": Line2D([], [], color=HELD, linewidth=1.1, linestyle=(0, (2, 1))),
    }
    theme.above(fig, list(entries.values()), list(entries))


FIGURE = Figure(
    name="engines_over_time",
    title="KV and calls of each engine over time",
    needs=("engines_over_time",),
    caption="Samples of the event log (every 10 s on virtual time), first seed, the greatest load of the "
    "first workload; at most eight systems and three engines are drawn, the CSV has all. Left axis: shares "
    "of the engine's KV, in use by its calls, and free but with content that may be found again. Right axis: "
    "calls that run or wait in the engine, and those that a gate holds, which belong to no engine.",
    tabulate=tabulate,
    paint=paint,
)

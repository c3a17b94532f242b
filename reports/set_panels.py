"""A row of panels, one per workload, model and load, each with a line per system."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pandas as pd

from reports import theme
from reports.loads import sets

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

Panel = Callable[[Any, pd.DataFrame, dict[str, theme.Mark]], None]
"""Draws the rows of one panel into its axes; ``systems``: name -> mark."""


def paint_sets(table: pd.DataFrame, panel: Panel, *, share_y: bool = True) -> Canvas:
    """The rows that are ``drawn``, a panel per set of them, and the legend of their systems."""
    rows = table[table.drawn]
    groups, systems = sets(rows), theme.marks(rows.system)
    fig, axes = theme.panels(1, len(groups), share_y=share_y)
    for j, (where, part) in enumerate(groups.items()):
        panel(axes[0, j], part, systems)
        theme.name_panel(axes[0, j], *where)
    theme.legend(fig, systems)
    return fig

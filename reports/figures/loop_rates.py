"""Steps per minute over programs at a time (ThunderAgent, Fig. 4)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from reports import loops
from reports.figure import Data, Figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas


def tabulate(data: Data) -> pd.DataFrame:
    """One row per panel, system and number of programs; ``paper``: the printed value."""
    return loops.loop_table(data, "steps_per_min")


def paint(_: Data, table: pd.DataFrame) -> Canvas:
    """A panel per workload."""
    return loops.paint(table, "steps/min")


FIGURE = Figure(
    name="loop_rates",
    title="Steps per minute over programs at a time",
    needs=("loop_points",),
    uses=("loop_paper",),
    caption="Calls that end in the measured window, per minute; each is a step with the tool behind it. "
    "Lines are means over seeds, bars 95 % t intervals over seeds; hollow and dotted: the paper's "
    "values. Points whose window was cut to less than half are left out.",
    tabulate=tabulate,
    paint=paint,
)

"""Prefix hits over programs at a time (ThunderAgent, Fig. 5)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from reports import loops
from reports.figure import Data, Figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas


def tabulate(data: Data) -> pd.DataFrame:
    """One row per panel, system and number of programs; ``paper``: the printed value."""
    return loops.loop_table(data, "hit")


def paint(_: Data, table: pd.DataFrame) -> Canvas:
    """A panel per workload."""
    return loops.paint(table, "prefix hits (% of prompt tokens)", 100.0)


FIGURE = Figure(
    name="loop_hits",
    title="Prefix hits over programs at a time",
    needs=("loop_points",),
    uses=("loop_paper",),
    caption="Prompt tokens found in the prefix cache at first admission, over prompt tokens, of calls that "
    "end in the measured window. Lines are means over seeds, bars 95 % t intervals over seeds; hollow "
    "and dotted: the paper's values.",
    tabulate=tabulate,
    paint=paint,
)

"""Tails of program-level token latency over arrival rate (Autellix, Fig. 13)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from reports import curves
from reports.figure import Data, Figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

COLUMNS = {"p95": "transient.p95", "p99": "transient.p99"}


def tabulate(data: Data) -> pd.DataFrame:
    """One row per percentile, system and rate; none where a seed has too few programs for it."""
    return curves.curve_table(data["points"], COLUMNS, paper=False)


def paint(_: Data, table: pd.DataFrame) -> Canvas:
    """Rows are models and percentiles, columns are workloads."""
    return curves.paint(table, "{} latency (s/token)", None, None)


FIGURE = Figure(
    name="tail_curves",
    title="Tails of program-level token latency over arrival rate",
    needs=("points",),
    caption="95th and 99th percentile over programs of response time over output tokens, programs arriving "
    "in [0, H], drained; means over seeds with 95 % t intervals. A percentile needs 130 (p95) or 662 (p99) "
    "programs in every seed and is left out otherwise. Hollow: not shown to be sustained. Arrow: beyond the "
    "axis, which ends at six times the median of its values.",
    tabulate=tabulate,
    paint=paint,
    lacks=lambda data: curves.one_rate(data["points"]),
)

"""Mean program-level token latency over arrival rate (Autellix, Fig. 12)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from reports import curves
from reports.figure import Data, Figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

COLUMNS = {"mean": "transient.mean_of_ratios"}


def tabulate(data: Data) -> pd.DataFrame:
    """One row per system and rate; ``top`` is where the panel's axis ends."""
    paper = data.get("paper_axes")
    return curves.curve_table(data["points"], COLUMNS, paper is not None and not paper.empty)


def paint(data: Data, table: pd.DataFrame) -> Canvas:
    """Rows are models, columns are workloads."""
    claims = data.get("claims")
    some = claims if claims is not None and len(claims) else None
    return curves.paint(table, "{} latency (s/token)", some, data.get("paper_axes"))


FIGURE = Figure(
    name="latency_curves",
    title="Program-level token latency over arrival rate",
    needs=("points",),
    uses=("claims", "paper_axes"),
    caption="Program response time over its output tokens, the mean over all programs that arrive in [0, H], "
    "drained. Lines are means over seeds, bars 95 % t intervals over seeds. Hollow: not shown to be "
    "sustained in more than half of the seeds, so the value depends on H. An arrow: beyond the axis, its "
    "value is in the CSV. Below a panel: what is claimed and what was got here with its interval, then the "
    "verdicts transient | sustained (✓ reproduced, ~ partly, ✗ not reproduced; in brackets: few seeds).",
    tabulate=tabulate,
    paint=paint,
    lacks=lambda data: curves.one_rate(data["points"]),
)

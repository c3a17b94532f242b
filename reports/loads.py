"""Which loads are in a picture that has a panel or a bar for each, and how they are ordered."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any

import pandas as pd

from reports import theme
from reports.curves import some

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

SHOWN = 2
ACROSS = 3
SET = ("workload", "model", "load")


def size_of(load: str) -> float:
    """The number in a load's words ("24 at all times", "poisson 2.5/s"); 0 if there is none."""
    found = re.search(r"\d+(\.\d+)?(e-?\d+)?", load)
    return float(found.group()) if found else 0.0


def drawn(table: pd.DataFrame) -> pd.DataFrame:
    """With a column ``drawn``: the least and the greatest load of each workload and model."""
    table = table.assign(drawn=False)
    for _, part in table.groupby(["workload", "model"]):
        sizes = part.load.map(size_of)
        table.loc[part.index, "drawn"] = sizes.isin(some(sizes.tolist(), SHOWN))
    return table


def places(rows: pd.DataFrame) -> pd.Series:
    """Arrival rates; where a row has none, how many programs run at a time (0: not known)."""
    loads: Any = rows.load.map(size_of).astype(float) if "load" in rows else 0.0
    return rows.rate.astype(float).fillna(loads)


def panels_of_sets(table: pd.DataFrame, share_y: bool = False) -> tuple[Canvas, dict[tuple[str, str], Any]]:
    """A figure with a panel for each workload and model that are in the table, ACROSS in a row."""
    found = list(dict.fromkeys(zip(table.workload, table.model, strict=True)))
    across = min(ACROSS, len(found))
    fig, axes = theme.panels(math.ceil(len(found) / across), across, share_y=share_y)
    for ax in axes.flat[len(found) :]:
        ax.set_axis_off()
    return fig, dict(zip(found, axes.flat, strict=False))


def sets(table: pd.DataFrame) -> dict[tuple[str, str, str], pd.DataFrame]:
    """The rows of each workload, model and load, those of one workload together, in order of load."""
    rows = table.assign(size=table.load.map(size_of))
    order = rows.groupby(list(SET), sort=False)["size"].first().reset_index()
    order = order.sort_values(["workload", "model", "size"], kind="stable")
    return {
        (w, m, load): table[(table.workload == w) & (table.model == m) & (table.load == load)]
        for w, m, load in zip(order.workload, order.model, order.load, strict=True)
    }

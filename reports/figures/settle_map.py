"""Who wins over KV pressure, tool family, release and tier (kv:settle)."""

from __future__ import annotations

import math
import textwrap
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from reports import theme
from reports.curves import distinct
from reports.figure import Data, Figure
from reports.numbers import number

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

ACROSS = 2
CELL = (1.05, 0.62)
"""Width and height (inches) of one place of a map."""
LETTERS = "ABCDEFGH"
VERDICT_SEEDS = 8
"""On fewer seeds a map is exploratory, and says so itself (house rules of measuring, rule 11)."""


def tabulate(data: Data) -> pd.DataFrame:
    """One row per place of a map: who wins, over the reference and over the second."""
    rows = data["settle"]
    return rows[np.isfinite(rows.gain.astype(float))].reset_index(drop=True)


def paint(data: Data, table: pd.DataFrame) -> Canvas:
    """A map for each setting of the axes that are not crossed; colour and name say who wins."""
    from matplotlib.patches import Patch

    maps = distinct(table, "map")
    xs, ys = distinct(table, "x"), distinct(table, "y")
    systems = theme.marks(table.winner)
    across = min(ACROSS, len(maps))
    few = exploratory(table)
    size = (CELL[0] * len(xs) + 1.0, CELL[1] * len(ys) + 0.9)
    fig, axes = theme.panels(math.ceil(len(maps) / across), across, share_y=False, size=size)
    for k, ax in enumerate(axes.flat):
        if k >= len(maps):
            ax.set_axis_off()
            continue
        _map(ax, table[table["map"] == maps[k]], xs, ys, systems)
        ax.set_title(textwrap.fill(maps[k] + (" (exploratory)" if few else ""), 20 * len(xs)))
        ax.set_xlabel("working set over KV (ratio)")
        ax.set_ylabel("tool times of equal means (s)")
        _papers(ax, data.get("settle_marks"), maps[k], xs, ys)
    notes = [(Patch(facecolor="white", edgecolor=theme.GREY, hatch="///"), "no clear lead")]
    if few:
        notes.append((Patch(facecolor="none", edgecolor="none"), few))
    theme.legend(fig, systems, notes)
    return fig


def exploratory(table: pd.DataFrame) -> str:
    """What a map of too few seeds says of itself; empty where there are enough."""
    fewest = int(table.seeds.min()) if len(table) else 0
    return "" if fewest >= VERDICT_SEEDS else f"exploratory: {fewest} seeds, no lead is tested"


def _map(ax: Any, rows: pd.DataFrame, xs: list[str], ys: list[str], systems: dict[str, theme.Mark]) -> None:
    from matplotlib.patches import Rectangle

    for row in rows.itertuples():
        i, j = xs.index(row.x), ys.index(row.y)
        color = systems[row.winner].color
        ax.add_patch(
            Rectangle((i, j), 1, 1, facecolor=color if row.clear else "white", edgecolor=color,
                      alpha=0.35 if row.clear else 1.0, hatch=None if row.clear else "///", linewidth=0.8)
        )  # fmt: skip
        words = f"{row.winner}\nx{number(row.gain)}" + ("" if row.clear else f"\n~ {row.second}")
        words += f"\n? {row.unknown}" if row.unknown else ""
        ax.text(i + 0.5, j + 0.5, words, ha="center", va="center", fontsize=5.8,
                bbox={"facecolor": "white", "alpha": 0.75, "linewidth": 0, "pad": 0.8})  # fmt: skip
    ax.set_xlim(0, len(xs))
    ax.set_ylim(0, len(ys))
    ax.set_xticks([i + 0.5 for i in range(len(xs))], xs)
    ax.set_yticks([j + 0.5 for j in range(len(ys))], [textwrap.fill(y, 12) for y in ys])
    ax.grid(False)


def _papers(ax: Any, marks: pd.DataFrame | None, name: str, xs: list[str], ys: list[str]) -> None:
    """The papers' points as letters in the corners of their places."""
    if marks is None or marks.empty:
        return
    taken: dict[tuple[str, str], int] = {}
    for letter, mark in zip(LETTERS, marks.itertuples(), strict=False):
        if mark.map != name or mark.x not in xs or mark.y not in ys:
            continue
        number_there = taken.get((mark.x, mark.y), 0)
        taken[mark.x, mark.y] = number_there + 1
        x, y = xs.index(mark.x) + 0.1 + 0.2 * number_there, ys.index(mark.y) + 0.88
        ax.text(x, y, letter, fontsize=6, weight="bold", ha="center", va="center", color="white",
                bbox={"boxstyle": "circle", "facecolor": "black", "pad": 0.15})  # fmt: skip


FIGURE = Figure(
    name="settle_map",
    title="Who wins: KV pressure by tool times, release, tier and clients",
    needs=("settle",),
    uses=("settle_marks",),
    caption="The best system of each setting and its gain over the reference (steps/min; in open loops the "
    "mean time of a program). Filled: it is told from every other system (paired tests, Holm over the "
    "places), leads the second by 2 % or more, on 8 seeds or more; hatched: it is not, and the second is "
    "named (~), as are systems whose windows were cut short (?); blank: the reference's was. Letters are "
    "the papers' own points, explained in the text.",
    tabulate=tabulate,
    paint=paint,
)

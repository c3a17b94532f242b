"""Who wins over KV pressure, tool family, release and tier (kv:settle)."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from reports import theme
from reports.curves import distinct
from reports.figure import Data, Figure
from reports.numbers import number

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

CELL = (1.32, 0.62)
"""Width and height (inches) of one place of a map."""
LETTERS = "ABCDEFGH"
VERDICT_SEEDS = 8
"""On fewer seeds a map is exploratory, and says so itself (house rules of measuring, rule 11)."""
NO_GAIN = 1.02
"""A gain over the reference below this is none."""
NOBODY = theme.Mark(theme.GREY, "", "-")
ACROSS = "working set over KV (ratio)"
UP = "tool times of equal means (s)"


class Map(NamedTuple):
    """Places in one panel: ``rows`` with their column and row in it (``i``, ``j``)."""

    title: str
    rows: pd.DataFrame
    xs: list[str]
    ys: list[str]
    labels: tuple[str, str]


def tabulate(data: Data) -> pd.DataFrame:
    """One row per place of a map: who wins, over the reference and over the second."""
    rows = data["settle"]
    return rows[np.isfinite(rows.gain.astype(float))].reset_index(drop=True)


def paint(data: Data, table: pd.DataFrame) -> Canvas:
    """A map for each setting of the axes that are not crossed, settings of one place side by side."""
    from matplotlib.patches import Patch

    maps = layout(table)
    gains = table[[not nothing(row) for row in table.itertuples()]]
    systems = theme.marks(gains.winner if len(gains) else table.winner)
    few = exploratory(table)
    widest = max(len(one.xs) for one in maps)
    heights = [CELL[1] * len(one.ys) + 0.9 for one in maps]
    fig, axes = theme.panels(
        len(maps), 1, share_y=False, size=(CELL[0] * widest + 1.0, heights[0]), heights=heights
    )
    for one, ax in zip(maps, axes.flat, strict=True):
        _map(ax, one, systems)
        ax.set_title(textwrap.fill(one.title + (" (exploratory)" if few else ""), 22 * widest))
        _papers(ax, data.get("settle_marks"), one)
    handles: list[Any] = [Patch(facecolor=m.color, alpha=0.5) for m in systems.values()]
    handles.append(Patch(facecolor="white", edgecolor=theme.GREY, hatch="///"))
    texts = [*systems, "no clear lead"]
    if few:
        handles.append(Patch(facecolor="none", edgecolor="none"))
        texts.append(few)
    theme.above(fig, handles, texts)
    return fig


def layout(table: pd.DataFrame) -> list[Map]:
    """Maps of several places as they are; those of one place are columns of one more."""
    found, single = [], []
    for name in distinct(table, "map"):
        rows = table[table["map"] == name]
        if len(rows) == 1:
            single.append(rows.iloc[0])
            continue
        xs, ys = distinct(rows, "x"), distinct(rows, "y")
        placed = rows.assign(i=[xs.index(x) for x in rows.x], j=[ys.index(y) for y in rows.y])
        found.append(Map(name, placed, [_value(x) for x in xs], [_value(y) for y in ys], (ACROSS, UP)))
    if single:
        rows = pd.DataFrame(single)
        where = [f"{row.x}, {row.y}" for row in rows.itertuples()]
        ys, xs = list(dict.fromkeys(where)), list(rows["map"])
        placed = rows.assign(i=range(len(rows)), j=[ys.index(y) for y in where])
        title = "one thing changed" if found else "one place each"
        found.append(Map(title, placed, xs, ys, ("what is changed", "where")))
    return found


def exploratory(table: pd.DataFrame) -> str:
    """What a map of too few seeds says of itself; empty where there are enough."""
    fewest = int(table.seeds.min()) if len(table) else 0
    return "" if fewest >= VERDICT_SEEDS else f"exploratory: {fewest} seeds, no lead is tested"


def nothing(row: Any) -> bool:
    """Whether even the best system of a place gains nothing to speak of."""
    return bool(row.gain < NO_GAIN)


def words(row: Any) -> str:
    """Who wins a place and by how much; where nobody clearly does, who it is not told from."""
    if nothing(row):
        said = f"nobody gains\n(best x{number(row.gain)})"
    else:
        said = textwrap.fill(row.winner, 20) + f"\nx{number(row.gain)}"
        if not row.clear:
            alike = [name for name in str(row.alike).split(", ") if name] if "alike" in row._fields else []
            others = len(set(alike) - {row.second})
            said += "\n" + textwrap.fill(f"~ {row.second}" + (f" and {others} more" if others else ""), 22)
    return said + (f"\n? {row.unknown}" if row.unknown else "")


def _value(label: str) -> str:
    """A tick without the name of its axis, which the axis has."""
    return label.split(" ", 1)[-1]


def _map(ax: Any, one: Map, systems: dict[str, theme.Mark]) -> None:
    from matplotlib.patches import Rectangle

    for row in one.rows.itertuples():
        color = (NOBODY if nothing(row) else systems[row.winner]).color
        ax.add_patch(
            Rectangle((row.i, row.j), 1, 1, facecolor=color if row.clear else "white", edgecolor=color,
                      alpha=0.35 if row.clear else 1.0, hatch=None if row.clear else "///", linewidth=0.8)
        )  # fmt: skip
        ax.text(row.i + 0.5, row.j + 0.5, words(row), ha="center", va="center", fontsize=5.8,
                bbox={"facecolor": "white", "alpha": 0.8, "linewidth": 0, "pad": 0.8})  # fmt: skip
    ax.set_xlim(0, len(one.xs))
    ax.set_ylim(0, len(one.ys))
    ax.set_xticks([i + 0.5 for i in range(len(one.xs))], [textwrap.fill(x, 20) for x in one.xs])
    ax.set_yticks([j + 0.5 for j in range(len(one.ys))], [textwrap.fill(y, 14) for y in one.ys])
    ax.set_xlabel(one.labels[0])
    ax.set_ylabel(one.labels[1])
    ax.grid(False)


def _papers(ax: Any, marks: pd.DataFrame | None, one: Map) -> None:
    """The papers' points as letters in the corners of their places."""
    if marks is None or marks.empty:
        return
    places = {(row.map, row.x, row.y): (row.i, row.j) for row in one.rows.itertuples()}
    taken: dict[tuple[int, int], int] = {}
    for letter, mark in zip(LETTERS, marks.itertuples(), strict=False):
        place = places.get((mark.map, mark.x, mark.y))
        if place is None:
            continue
        number_there = taken.get(place, 0)
        taken[place] = number_there + 1
        x, y = place[0] + 0.08 + 0.16 * number_there, place[1] + 0.86
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
    "named (~) with how many more it is not told from by a single test; grey: the best gains less than 2 %; "
    "?: systems whose windows were cut short; blank: the reference's was. Letters are "
    "the papers' own points, explained in the text.",
    tabulate=tabulate,
    paint=paint,
)

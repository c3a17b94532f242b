"""A figure: what it needs, how it is drawn, and the table behind it; found by scanning ``figures/``.

Data are plain frames by name (docs/report.md lists their columns). Adding a figure is one
file in ``reports/figures/`` with a module-level ``FIGURE``.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any

import pandas as pd

from reports import theme

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

Data = Mapping[str, pd.DataFrame]
"""Frame name -> rows. One that could not be built may be there, empty, with ``attrs["reason"]``."""

EMPTY = "nothing finite to plot"
UNMARKED = "provenance of these numbers was not given"


@dataclass(frozen=True)
class Figure:
    """A kind of picture.

    ``needs``: frames without which it is not drawn; ``uses``: frames it also takes.
    ``caption``: how to read it. ``tabulate(data)``: what is plotted, one row a mark.
    ``paint(data, table)``: the picture of that table. ``lacks(data)``: why these data do
    not make one, beside missing frames; empty if they do.
    """

    name: str
    title: str
    needs: tuple[str, ...]
    caption: str
    tabulate: Callable[[Data], pd.DataFrame]
    paint: Callable[[Data, pd.DataFrame], Canvas]
    uses: tuple[str, ...] = ()
    lacks: Callable[[Data], str] = lambda _: ""

    def missing(self, data: Data) -> str:
        """Why it cannot be drawn; empty if it can."""
        for name in self.needs:
            frame = data.get(name)
            if frame is None or frame.empty:
                reason = "" if frame is None else str(frame.attrs.get("reason", ""))
                return f"no {name}: {reason or 'these results do not have them'}"
        if reason := self.lacks(data):
            return reason
        return ""

    def table(self, data: Data) -> pd.DataFrame:
        """What is plotted, for the CSV; empty if it cannot be drawn."""
        return pd.DataFrame() if self.missing(data) else self.tabulate(data)

    def draw(self, data: Data, table: pd.DataFrame | None = None) -> Canvas:
        """The picture, stamped with where its numbers come from; it says so if there is nothing.

        ``table``: of the same data, where it is there already.
        """
        plotted = self.table(data) if table is None else table
        reason = self.missing(data) or ("" if len(plotted) else EMPTY)
        with theme.style(self.name):
            fig = theme.nothing(reason) if reason else self.paint(data, plotted)
            theme.stamp(fig, badge(data))
            return fig


@dataclass(frozen=True)
class Picture:
    """A drawn figure as bytes that are the same for the same data."""

    name: str
    title: str
    caption: str
    alt: str
    svg: bytes
    png: bytes
    csv: str
    badge: str


def badge(data: Data) -> str:
    """What kind of numbers the points are; several kinds are all named."""
    for name in ("points", *data):
        frame = data.get(name)
        if frame is not None and "badge" in frame and len(frame):
            kinds = list(dict.fromkeys(str(b) for b in frame["badge"].dropna()))
            if len(kinds) == 1:
                return kinds[0]
            if kinds:
                words = {kind.partition(" ")[0] for kind in kinds}
                word = words.pop() if len(words) == 1 else "simulated and measured mixed"
                first = kinds[0].removeprefix(f"{word} ")
                return f"{word}, {len(kinds)} set-ups (all of them under Provenance), the first: {first}"
    return UNMARKED


def render(figure: Figure, data: Data, table: pd.DataFrame | None = None) -> Picture:
    """Draw a figure (of its ``table``, if given) and keep it as SVG, PNG (150 dpi) and CSV."""
    table = figure.table(data) if table is None else table
    fig = figure.draw(data, table)
    with theme.style(figure.name):
        theme.lay_out(fig)
        svg, png = _files(fig, figure.title)
    csv = table.to_csv(index=False, lineterminator="\n")
    alt = f"{figure.title}. {figure.caption} {len(table)} rows are in the CSV."
    return Picture(figure.name, figure.title, figure.caption, alt, svg, png, csv, badge(data))


def _files(fig: Canvas, title: str) -> tuple[bytes, bytes]:
    """SVG and PNG, each drawn once: ``savefig`` would draw each twice, for a layout that is there already."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    svg, png = io.BytesIO(), io.BytesIO()
    pixels: Any = FigureCanvasAgg(fig)
    pixels.print_png(png, metadata={"Software": None})
    lines: Any = FigureCanvasSVG(fig)
    lines.print_svg(svg, metadata={"Date": None, "Title": title})  # the last: it sets its own resolution
    return svg.getvalue(), png.getvalue()


def figures() -> dict[str, Figure]:
    """Every figure by name, in the order of their file names. Raises TypeError for a file that has none."""
    package = import_module("reports.figures")
    found: dict[str, Figure] = {}
    for module in sorted(m.name for m in iter_modules(package.__path__)):
        figure = getattr(import_module(f"reports.figures.{module}"), "FIGURE", None)
        if not isinstance(figure, Figure):
            raise TypeError(f"reports/figures/{module}.py has no FIGURE (a reports.figure.Figure)")
        found[figure.name] = figure
    return found

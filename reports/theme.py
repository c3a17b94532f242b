"""How every figure looks: one mark per system, readable in print, in grey and by colour-blind readers.

Colours are close to Okabe and Ito's; those of the paper's systems are a tenth or more apart
in lightness. A system also has a marker and a line style of its own, so that nothing depends on
colour. matplotlib is imported when a figure is drawn.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Dash = Literal["-"] | tuple[float, tuple[float, ...]]

SIMULATED = "SIMULATED"
GREY = "#666666"
BAND = "#ececec"
LINE = 0.2
"""Height (inches) of a row of the legend."""
PANEL = (2.9, 2.3)
"""Width and height (inches) of one panel, its labels included."""


@dataclass(frozen=True)
class Mark:
    """How a system is drawn: colour, marker, line style; marker size and line width in points."""

    color: str
    marker: str
    dash: Dash
    size: float = 5.0
    width: float = 1.4


MARKS: Mapping[str, Mark] = {
    "vllm-base": Mark("#000000", "X", (0, (1, 1.2))),
    "vllm-opt": Mark("#2f8fce", "s", (0, (5, 1.5))),
    "mlfq": Mark("#e69f00", "^", (0, (4, 1.2, 1, 1.2))),
    "autellix": Mark("#b33a00", "o", "-"),
    "atlas": Mark("#1b4f8a", "p", (0, (9, 1.5, 2, 1.5))),
    "plas": Mark("#009e73", "D", (0, (8, 2))),
    "srpt": Mark("#cc79a7", "v", (0, (2, 1, 1, 1, 1, 1))),
    "session-pinned": Mark("#999999", "P", (0, (3, 1, 1, 1, 1, 1))),
}
"""Systems of the catalog always look the same, whatever else is in the picture."""

SPARE = (
    Mark("#332288", "*", (0, (6, 1, 2, 1))),
    Mark("#88ccee", "<", (0, (1, 2.5))),
    Mark("#117733", ">", (0, (10, 3))),
    Mark("#882255", "h", (0, (3, 3))),
    Mark("#ddcc77", "d", (0, (7, 1, 1, 1, 1, 1, 1, 1))),
    Mark("#aa4499", "H", (0, (2, 4))),
    Mark("#661100", "8", (0, (4, 4, 1, 4))),
)
"""For systems outside the catalog, in the order in which they are named."""


def marks(systems: Iterable[str]) -> dict[str, Mark]:
    """A mark for each system, in drawing order: the catalog's first, then by name.

    No two share a marker and a line style; past 15 systems the spare ones repeat. Each is a
    little smaller than the one below it, so that systems that coincide are all seen.
    """
    names = ordered(systems)
    found: dict[str, Mark] = {}
    taken: set[tuple[str, Dash]] = set()
    spare = iter(SPARE * (1 + len(names) // len(SPARE)))
    for k, name in enumerate(names):
        mark = MARKS.get(name)
        if mark is None or (mark.marker, mark.dash) in taken:
            mark = next(spare)
        taken.add((mark.marker, mark.dash))
        found[name] = replace(mark, size=max(3.4, 7.0 - k), width=max(1.0, 2.2 - 0.3 * k))
    return found


def ordered(systems: Iterable[str]) -> list[str]:
    """Systems in the order of ``MARKS`` (baselines first), others by name behind them."""
    place = {name: i for i, name in enumerate(MARKS)}
    return sorted(set(systems), key=lambda name: (place.get(name, len(place)), name))


@contextmanager
def style(salt: str) -> Iterator[None]:
    """matplotlib's settings for one figure; ``salt`` makes the SVG's ids the same every time."""
    import matplotlib

    settings: dict[str, Any] = {
        "font.family": "DejaVu Sans",
        "font.size": 8,
        "axes.titlesize": 8.5,
        "axes.labelsize": 8,
        "axes.linewidth": 0.7,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "xtick.labelsize": 7.5,
        "ytick.labelsize": 7.5,
        "legend.fontsize": 8,
        "legend.frameon": False,
        "lines.linewidth": 1.4,
        "lines.markersize": 5,
        "hatch.linewidth": 0.6,
        "figure.dpi": 150,
        "savefig.dpi": 150,
        "svg.hashsalt": salt,
        "svg.fonttype": "path",
        "path.simplify": False,
        "text.parse_math": False,
    }
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(settings)  # type: ignore[arg-type]
        yield


def panels(
    rows: int, columns: int, *, share_y: bool = True, size: tuple[float, float] = PANEL
) -> tuple[Figure, Any]:
    """A figure and its axes as a rows x columns array; nothing global is touched."""
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    width, height = max(4.2, size[0] * columns + 0.5), size[1] * rows + 0.5
    engine = ConstrainedLayoutEngine(w_pad=0.06, h_pad=0.06)
    fig = Figure(figsize=(width, height), layout=engine)
    axes = fig.subplots(rows, columns, squeeze=False, sharey="row" if share_y else False)
    for ax in axes.flat:
        ax.grid(True, color="#e3e3e3", linewidth=0.5)
        ax.set_axisbelow(True)
    return fig, axes


def name_panel(ax: Any, workload: str, *details: str) -> None:
    """Title of a panel: the workload, what else tells it from its neighbours below."""
    ax.set_title(textwrap.fill(workload, 40) + "\n" + textwrap.fill(", ".join(details), 44))


def plain_numbers(axis: Any) -> None:
    """Labels of a logarithmic axis as 0.2 rather than as powers."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axis.set_major_locator(LogLocator(subs=(1, 2, 5), numticks=12))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


def lay_out(fig: Figure) -> None:
    """Place the panels once for all files, at rounded positions.

    The layout's solver differs in the last bit from run to run, which would change the SVG's ids.
    """
    fig.draw_without_rendering()
    fig.set_layout_engine("none")
    for ax in fig.axes:
        ax.set_position(tuple(round(v, 5) for v in ax.get_position().bounds))


def nothing(reason: str) -> Figure:
    """A picture that says why there is none."""
    from matplotlib.figure import Figure

    fig = Figure(figsize=(5.0, 1.2))
    fig.text(0.5, 0.5, f"nothing to draw: {reason}", ha="center", va="center", color=GREY)
    return fig


def legend(fig: Figure, names: Mapping[str, Mark], notes: Sequence[tuple[Any, str]] = ()) -> None:
    """Systems as line and marker in one row above the panels; ``notes`` are (artist, text) behind them."""
    from matplotlib.lines import Line2D

    handles: list[Any] = [
        Line2D([], [], color=m.color, marker=m.marker, linestyle=m.dash, label=name)
        for name, m in names.items()
    ]
    labels = [*names, *(text for _, text in notes)]
    handles += [artist for artist, _ in notes]
    widest = 0.7 + 0.055 * max(map(len, labels))  # inches: handle and text
    room = max(1, int(fig.get_figwidth() / widest))
    fig.set_figheight(fig.get_figheight() + LINE * math.ceil(len(labels) / room))
    fig.legend(handles, labels, loc="outside upper center", ncols=min(len(labels), room), handlelength=3.4)


def stamp(fig: Figure, badge: str) -> None:
    """What kind of numbers these are, in the picture itself: it is copied without its page."""
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    width = int(fig.get_figwidth() * 17)
    text = badge if len(badge) <= width else badge[: width - 1].rstrip(" ,;") + "…"
    weight = "bold" if badge.startswith(SIMULATED) else "normal"
    fig.text(0.004, 0.004, text, fontsize=6, color=GREY, weight=weight, ha="left", va="bottom")
    engine = fig.get_layout_engine()
    if isinstance(engine, ConstrainedLayoutEngine):
        foot = 0.14 / fig.get_figheight()
        engine.set(rect=(0, foot, 1, 1 - foot))

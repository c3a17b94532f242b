"""How every figure looks: one mark per system, readable in print, in grey and by colour-blind readers.

Colours are Okabe and Ito's eight, which differ in lightness too; a system also has a marker
and a line style of its own, so that nothing depends on colour. matplotlib is imported when a
figure is drawn.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Dash = Literal["-"] | tuple[float, tuple[float, ...]]

SIMULATED = "SIMULATED"
GREY = "#666666"
BAND = "#ececec"
PANEL = (2.9, 2.3)
"""Width and height (inches) of one panel, its labels included."""


@dataclass(frozen=True)
class Mark:
    """How a system is drawn: colour, marker, line style, and hatch where it is a bar."""

    color: str
    marker: str
    dash: Dash
    hatch: str = ""


MARKS: Mapping[str, Mark] = {
    "vllm-base": Mark("#000000", "x", (0, (1, 1.2)), ".."),
    "vllm-opt": Mark("#56b4e9", "s", (0, (5, 1.5)), "//"),
    "mlfq": Mark("#e69f00", "^", (0, (4, 1.2, 1, 1.2)), "\\\\"),
    "autellix": Mark("#d55e00", "o", "-", ""),
    "atlas": Mark("#0072b2", "o", "-", "xx"),
    "plas": Mark("#009e73", "D", (0, (8, 2)), "++"),
    "srpt": Mark("#cc79a7", "v", (0, (2, 1, 1, 1, 1, 1)), "oo"),
    "session-pinned": Mark("#999999", "P", (0, (3, 1, 1, 1, 1, 1)), "--"),
}
"""Systems of the catalog always look the same, whatever else is in the picture."""

SPARE = (
    Mark("#332288", "*", (0, (6, 1, 2, 1)), "**"),
    Mark("#88ccee", "<", (0, (1, 2.5)), "||"),
    Mark("#117733", ">", (0, (10, 3)), "-."),
    Mark("#882255", "h", (0, (3, 3)), "/o"),
    Mark("#ddcc77", "d", (0, (7, 1, 1, 1, 1, 1, 1, 1)), "\\|"),
    Mark("#aa4499", "X", (0, (2, 4)), "+x"),
    Mark("#44aa99", "p", (0, (9, 1, 3, 1)), "|."),
    Mark("#661100", "8", (0, (4, 4, 1, 4)), "-o"),
)
"""For systems outside the catalog, in the order in which they are named."""


def marks(systems: Iterable[str]) -> dict[str, Mark]:
    """A mark for each system, in drawing order: the catalog's first, then by name.

    No two share a marker and a line style; past 16 systems the spare ones repeat.
    """
    names = ordered(systems)
    found: dict[str, Mark] = {}
    taken: set[tuple[str, Dash]] = set()
    spare = iter(SPARE * (1 + len(names) // len(SPARE)))
    for name in names:
        mark = MARKS.get(name)
        if mark is None or (mark.marker, mark.dash) in taken:
            mark = next(spare)
        taken.add((mark.marker, mark.dash))
        found[name] = mark
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

    width, height = max(3.6, size[0] * columns + 0.5), size[1] * rows + 0.9
    engine = ConstrainedLayoutEngine(w_pad=0.06, h_pad=0.06)
    fig = Figure(figsize=(width, height), layout=engine)
    axes = fig.subplots(rows, columns, squeeze=False, sharey="row" if share_y else False)
    for ax in axes.flat:
        ax.grid(True, color="#e3e3e3", linewidth=0.5)
        ax.set_axisbelow(True)
    return fig, axes


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
        Line2D([], [], color=m.color, marker=m.marker, linestyle=m.dash, markersize=5, label=name)
        for name, m in names.items()
    ]
    labels = [*names, *(text for _, text in notes)]
    handles += [artist for artist, _ in notes]
    room = max(2, int(fig.get_figwidth() / 1.45))
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

"""How every figure looks: one mark per system, readable in print, in grey and by colour-blind readers.

Colours are close to Okabe and Ito's; those of the first paper's systems are a tenth or more apart
in lightness. A system also has a marker and a line style of its own, so that nothing depends on
colour. matplotlib is imported when a figure is drawn.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from reports.labels import columns, wrap

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Dash = Literal["-"] | tuple[float, tuple[float, ...]]
Marker = str | tuple[int, Literal[0, 1, 2], int]
"""matplotlib's name, or (points, 1, angle) of a star."""

SIMULATED = "SIMULATED"
GREY = "#666666"
BAND = "#ececec"
LINE = 0.2
"""Height (inches) of a row of the legend."""
PANEL = (2.9, 2.3)
"""Width and height (inches) of one panel, its labels included."""
FOOT = 0.14
"""Height (inches) of the stamp."""
GROWTHS, GROWTH = 4, 1.3


@dataclass(frozen=True)
class Mark:
    """How a system is drawn: colour, marker, line style; marker size and line width in points."""

    color: str
    marker: Marker
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
    "program-cap": Mark("#00a8c0", (3, 1, 0), (0, (12, 2))),
    "thunderagent": Mark("#7b1fa2", "*", (0, (6, 1, 2, 1))),
    "thunderagent-code": Mark("#b583d6", "<", (0, (1, 2.5))),
    "thunderagent-dynamo": Mark("#40107a", ">", (0, (10, 3))),
    "progress-ttl": Mark("#808000", "h", (0, (3, 3))),
    "las-fairness": Mark("#c7a500", (8, 1, 0), (0, (2, 4))),
    "continuum-fixed": Mark("#117733", "d", (0, (7, 1, 1, 1, 1, 1, 1, 1))),
    "continuum-ttl": Mark("#6cc06c", "8", (0, (4, 4, 1, 4))),
    "infercept": Mark("#8c5a2b", (4, 1, 0), (0, (2, 2))),
    "pinned": Mark("#5f6b7a", "H", (0, (6, 1.5, 1, 1.5, 1, 1.5))),
    "survival": Mark("#e3008c", (6, 1, 0), (0, (5, 1, 5, 3))),
}
"""Systems of the catalog always look the same, whatever else is in the picture."""

COLORS = ("#332288", "#88ccee", "#882255", "#ddaa33", "#661100", "#44aa99", "#ee6677", "#4477aa")
"""For systems that are not in MARKS, by their name."""
SHAPES = ("s", "^", "o", "D", "v", "P", "X", "*", "<", ">", "d", "p", "h")
SHADES = (1.0, 0.55, 1.45)
"""Of a system's colour, for its variants: darker below 1, towards white above."""
_DASHES = tuple(mark.dash for mark in MARKS.values())


def marks(systems: Iterable[str]) -> dict[str, Mark]:
    """A mark for each system, in drawing order: that of MARKS first, then by name.

    No two share a marker and a line style, nor a colour and a marker. A system that is not in MARKS gets
    its mark from its name; a variant ("mlfq scheduler.levels=4") has a shade of its system's colour.
    Where two names come to the same, and only then, the later one depends on the earlier. Each is a
    little smaller than the one below it, so that systems that coincide are all seen.
    """
    names = ordered(systems)
    taken = [MARKS[name] for name in names if name in MARKS]
    found: dict[str, Mark] = {}
    for k, name in enumerate(names):
        mark = MARKS.get(name)
        if mark is None:
            mark = _own(name, taken)
            taken.append(mark)
        found[name] = replace(mark, size=max(3.4, 7.0 - k), width=max(1.0, 2.2 - 0.3 * k))
    return found


def _own(name: str, taken: Sequence[Mark]) -> Mark:
    """The first mark, from a place that the name gives, that differs enough from those that are taken."""
    number = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big")
    family = MARKS.get(name.partition(" ")[0])
    colors = [_shaded(family.color, by) for by in SHADES] if family else COLORS
    for step in range(len(SHAPES) * len(_DASHES)):
        place = number + step
        marker, dash = SHAPES[place % len(SHAPES)], _DASHES[place // len(SHAPES) % len(_DASHES)]
        mark = Mark(colors[place % len(colors)], marker, dash)
        if not any(_alike(mark, other) for other in taken):
            break
    return mark


def _shaded(color: str, by: float) -> str:
    """``#rrggbb`` times ``by`` where that is below 1, else as far towards white."""
    parts = [int(color[i : i + 2], 16) for i in (1, 3, 5)]
    return "#" + "".join(f"{round(v * by if by <= 1 else v + (255 - v) * (by - 1)):02x}" for v in parts)


def _alike(one: Mark, other: Mark) -> bool:
    return one.marker == other.marker and (one.dash == other.dash or one.color == other.color)


def ordered(systems: Iterable[str]) -> list[str]:
    """Systems in the order of ``MARKS`` (baselines first), each with its variants; others by name behind."""
    place = {name: i for i, name in enumerate(MARKS)}
    return sorted(set(systems), key=lambda name: (place.get(name.partition(" ")[0], len(place)), name))


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
    rows: int,
    columns: int,
    *,
    share_y: bool = True,
    size: tuple[float, float] = PANEL,
    heights: Sequence[float] | None = None,
) -> tuple[Figure, Any]:
    """A figure and its axes as a rows x columns array; nothing global is touched.

    ``heights``: of each row of panels (inches), where they differ.
    """
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    each = [size[1]] * rows if heights is None else list(heights)
    width, height = max(4.2, size[0] * columns + 0.5), sum(each) + 0.5
    engine = ConstrainedLayoutEngine(w_pad=0.06, h_pad=0.06)
    fig = Figure(figsize=(width, height), layout=engine)
    shared: Literal["row"] | bool = "row" if share_y else False
    axes = fig.subplots(rows, columns, squeeze=False, sharey=shared, height_ratios=each)
    for ax in axes.flat:
        ax.grid(True, color="#e3e3e3", linewidth=0.5)
        ax.set_axisbelow(True)
    return fig, axes


def name_panel(ax: Any, workload: str, *details: str) -> None:
    """Title of a panel: the workload, what else tells it from its neighbours below; as wide as the panel."""
    across = ax.get_subplotspec().get_gridspec().ncols
    room = ax.get_figure().get_figwidth() / across - 0.45
    lines = [wrap(text, room, 8.5) for text in (workload, ", ".join(d for d in details if d))]
    ax.set_title("\n".join(line for line in lines if line))


def plain_numbers(axis: Any) -> None:
    """Labels of a logarithmic axis as 0.2 rather than as powers."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axis.set_major_locator(LogLocator(subs=(1, 2, 5), numticks=12))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


def lay_out(fig: Figure) -> None:
    """Place the panels once for all files, at rounded positions; a picture too small for its words grows.

    The layout's solver differs in the last bit from run to run, which would change the SVG's ids.
    """
    engine = fig.get_layout_engine()
    for _ in range(GROWTHS):
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            if engine is not None:
                engine.execute(fig)
        if not any("constrained_layout" in str(one.message) for one in said):
            break
        fig.set_size_inches(GROWTH * fig.get_figwidth(), GROWTH * fig.get_figheight())
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
    """Systems as line and marker above the panels, long names wrapped; ``notes``: (artist, text) behind."""
    from matplotlib.lines import Line2D

    handles: list[Any] = [
        Line2D([], [], color=m.color, marker=m.marker, linestyle=m.dash, label=name)
        for name, m in names.items()
    ]
    above(fig, handles + [artist for artist, _ in notes], [*names, *(text for _, text in notes)], 3.4)


def above(fig: Figure, handles: Sequence[Any], texts: Sequence[str], length: float = 2.0) -> None:
    """A legend above the panels in as many columns as fit, for which the figure grows.

    ``length``: of the handles, in units of the font's size.
    """
    around = 0.12 * (length + 3.2)  # inches: handle, space behind it and between columns
    room = fig.get_figwidth() - 0.2
    texts = [wrap(text, room - around) for text in texts]
    across = columns(texts, room, around)
    rows = [texts[i::across] for i in range(across)]
    lines = max(sum(0.7 * LINE * text.count("\n") + LINE for text in column) for column in rows)
    fig.set_figheight(fig.get_figheight() + lines)
    fig.legend(handles, texts, loc="outside upper center", ncols=across, handlelength=length)


def stamp(fig: Figure, badge: str) -> None:
    """What kind of numbers these are, in the picture itself: it is copied without its page."""
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    width = int(fig.get_figwidth() * 17)
    text = badge if len(badge) <= width else badge[: width - 1].rstrip(" ,;") + "…"
    weight = "bold" if badge.startswith(SIMULATED) else "normal"
    fig.text(0.004, 0.004, text, fontsize=6, color=GREY, weight=weight, ha="left", va="bottom")
    engine = fig.get_layout_engine()
    if isinstance(engine, ConstrainedLayoutEngine):
        foot = FOOT / fig.get_figheight()
        engine.set(rect=(0, foot, 1, 1 - foot))

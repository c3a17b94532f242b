"""Long names in small places: measured, wrapped, or numbered with a key below the picture."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SIZE = 8.0
TICK = 6.5
"""Points of a name at a bar, and of the key."""
ROOM = 1.6
"""Width (inches) of names at bars: longer ones are wrapped."""
LINES = 2
"""Where a name would need more lines than this, all get numbers."""
HINTED = 1.06
"""Letters that are set on whole pixels take more than their outlines."""
_INCH = 72.0


@lru_cache(maxsize=4096)
def width(text: str, size: float = SIZE) -> float:
    """Inches that one line of text takes at most; ``size`` in points."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import text_to_path

    font = FontProperties(family="DejaVu Sans", size=size)
    found, _, _ = text_to_path.get_text_width_height_descent(text, font, ismath=False)
    return HINTED * float(found) / _INCH


def wrap(text: str, inches: float, size: float = SIZE) -> str:
    """The text in lines of at most ``inches``, broken between words; a longer word is broken inside."""
    lines: list[str] = []
    for word in text.split():
        joined = f"{lines[-1]} {word}" if lines else word
        if lines and width(joined, size) <= inches:
            lines[-1] = joined
        else:
            lines += _pieces(word, inches, size)
    return "\n".join(lines)


def _pieces(word: str, inches: float, size: float) -> list[str]:
    """A word in as many pieces as it needs, all but the last one as long as fits."""
    found = [""]
    for letter in word:
        if found[-1] and width(found[-1] + letter, size) > inches:
            found.append("")
        found[-1] += letter
    return found


@dataclass(frozen=True)
class Ticks:
    """``text``: name -> what stands at its bar, ``width`` inches at most, in up to ``lines`` lines; ``key``:
    number -> name, where numbers stand there."""

    text: Mapping[str, str]
    key: Mapping[str, str]

    @property
    def width(self) -> float:
        """Inches of the widest line."""
        return max(width(line, TICK) for text in self.text.values() for line in text.split("\n"))

    @property
    def lines(self) -> int:
        """Of the name with most."""
        return max(text.count("\n") + 1 for text in self.text.values())

    def bar(self, height: float) -> float:
        """Inches that a bar needs, ``height`` where its name is one line."""
        return max(height, (1.25 * self.lines + 0.5) * TICK / _INCH)


def ticks(names: Iterable[str], inches: float = ROOM) -> Ticks:
    """What stands at the bars of these names, in their order: wrapped, or numbers if one is too long."""
    found = {name: wrap(name, inches, TICK) for name in names}
    if max(text.count("\n") for text in found.values()) < LINES:
        return Ticks(found, {})
    numbers = {name: str(k) for k, name in enumerate(found, 1)}
    return Ticks(numbers, {number: name for name, number in numbers.items()})


def key(fig: Figure, found: Ticks, foot: float) -> None:
    """The names behind the numbers, a line each, below the panels; ``foot``: inches kept free below it."""
    if not found.key:
        return
    from matplotlib.lines import Line2D

    room = fig.get_figwidth() - 0.3
    lines = [wrap(f"{number}: {name}", room, TICK) for number, name in found.key.items()]
    height = 0.15 + sum(1.25 * (line.count("\n") + 1) + 0.3 for line in lines) * TICK / _INCH
    fig.set_figheight(fig.get_figheight() + height)
    fig.legend(
        [Line2D([], [], linestyle="none") for _ in lines], lines, loc="outside lower left", fontsize=TICK,
        handlelength=0, handletextpad=0, labelspacing=0.3, borderpad=0,
        borderaxespad=(foot + 0.05) * _INCH / TICK,
    )  # fmt: skip


def columns(texts: Sequence[str], inches: float, around: float) -> int:
    """How many columns of a legend fit ``inches``; ``around``: inches that an entry takes beside its text."""
    widest = around + max(width(line) for text in texts for line in text.split("\n"))
    return min(len(texts), max(1, int(inches / widest)))

"""What a part of the fidelity suite is: a comparison with something real, its bars, its page.

A part is a module of ``bench.fidelity.parts`` with an object ``PART``; the suite finds it there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from systems.latency.validation import Validation

Say = Callable[[str], None]
"""Progress in words, one short line each."""


@dataclass(frozen=True)
class Options:
    """``data``: folder of the recordings (docs/fidelity.md says which); ``work``: a folder for what
    the part leaves behind (logs, results); ``seed``: first seed; ``quick``: enough to see that it works,
    never written down as a result."""

    data: Path
    work: Path
    seed: int = 1
    quick: bool = False


@dataclass(frozen=True)
class Bar:
    """A stated bar and what was got. ``got`` and ``most`` in the same unit; ``met`` if got <= most.

    ``interval``: 95 % of what ``got`` is the size of, signed where that has a sign; None: none is known."""

    what: str
    got: float
    most: float
    unit: str = "%"
    interval: tuple[float, float] | None = None

    @property
    def met(self) -> bool:
        """Whether the bar holds; NaN never does."""
        return self.got <= self.most


@dataclass(frozen=True)
class Outcome:
    """What a part found. ``page``: Markdown below the part's heading; ``numbers``: plain data behind it,
    kept in docs/fidelity/NAME.json; ``facts``: seeds, versions, files with sha256, machine, seconds."""

    bars: Sequence[Bar]
    page: str
    numbers: Mapping[str, Any] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)
    validations: Sequence[Validation] = ()


class Part(Protocol):
    """One comparison. ``name`` sorts the page ("a-schedules"); ``title`` is its heading."""

    name: str
    title: str
    cost: str
    """What it needs and takes, in words ("vLLM; about 3 minutes")."""

    def missing(self, options: Options) -> str:
        """Why it cannot run here and what to do; empty if it can."""

    def run(self, options: Options, say: Say) -> Outcome:
        """Compare. Raises BenchError."""

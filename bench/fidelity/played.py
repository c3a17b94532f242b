"""What happened in a played scenario, in values that compare with ==."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vocabulary import Decision, Finished, Step


@dataclass(frozen=True)
class Played:
    """One list of steps and one set of totals (``Engine.stats``) per engine.

    ``rows``, ``programs`` and ``samples`` are the tables calls, programs and engine of the event log;
    ``calls`` the rows of the first as objects.
    """

    steps: Sequence[Sequence[Step]]
    decisions: Sequence[Decision]
    rows: Sequence[tuple[Any, ...]]
    programs: Sequence[tuple[Any, ...]]
    samples: Sequence[tuple[Any, ...]]
    totals: Sequence[Mapping[str, float]]
    calls: Sequence[Finished]

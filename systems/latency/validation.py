"""How far each (model, GPU) was from something real: ``bench fidelity`` writes it, lists and cards read."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from systems.latency.facts import same_model

FILE = Path(__file__).parent / "validations.json"
NOTHING = "nothing"
"""What ``fitted`` says where step times were compared as they are."""


@dataclass(frozen=True)
class Validation:
    """``error`` is a fraction (0.013 is 1.3 %) of ``metric`` by ``statistic`` over ``n`` rows.

    ``fitted`` says what was fitted before ("nothing", or "scale and ms per step, held out"),
    ``against`` what it was compared with. Raises ValueError for an error that is no number, or negative.
    """

    model: str
    gpu: str
    metric: str
    statistic: str
    error: float
    n: int
    fitted: str
    against: str

    def __post_init__(self) -> None:
        if not (isinstance(self.error, int | float) and 0.0 <= self.error < math.inf):
            raise ValueError(f"{self.model} on {self.gpu}: error must be a fraction, got {self.error!r}")

    def __str__(self) -> str:
        error = f"{self.metric} {self.error:.1%} {self.statistic} of {self.n}"
        return f"{error} against {self.against} (fitted: {self.fitted})"


def validations(model: str, gpu: str) -> list[Validation]:
    """What is known of ``model`` (under any of its spellings) on ``gpu``; empty if nothing is."""
    return [row for row in every() if row.gpu == gpu and same_model(row.model, model)]


@cache
def every() -> tuple[Validation, ...]:
    """All of them, in the order of the suite's parts."""
    return tuple(Validation(**row) for row in json.loads(FILE.read_text(encoding="utf-8")))


def write(rows: Sequence[Mapping[str, Any]], path: Path = FILE) -> None:
    """Replace the file. Raises OSError, ValueError, or TypeError for rows with other fields."""
    checked = [asdict(Validation(**row)) for row in rows]
    lines = ",\n".join(" " + json.dumps(row) for row in checked)
    path.write_text(f"[\n{lines}\n]\n" if checked else "[]\n", encoding="utf-8")
    every.cache_clear()

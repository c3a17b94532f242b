"""What a workload is, and how its file is found.

One file per workload in this folder: a module-level ``WORKLOAD`` object. A
reader is one file in ``readers/`` with a module-level ``READER``. Nothing
else needs an edit; ``tests/contract`` finds and checks every one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Protocol

from workloads.session import Program, Session


class Wave(NamedTuple):
    """The batch of a closed loop that a program is of: it starts when all before have ended.

    And ``sync_s`` after the model's ``version`` exists, if the batch before had another: version v does
    ``train_s`` after the end of batch v - 1 and of the training before (seconds).
    """

    number: int
    version: int
    train_s: float
    sync_s: float


@dataclass(slots=True, eq=False)
class ProgramSpec:
    """One program before it runs.

    ``key`` is its root key, ``start(session)`` makes its coroutine. ``arrival``
    is a recorded arrival time in seconds, None for generated programs; ``wave``
    is None where programs need not wait for each other.
    """

    index: int
    kind: str
    key: int
    start: Callable[[Session], Program]
    arrival: float | None = None
    wave: Wave | None = None

    def launch(self) -> Program:
        """The coroutine of this program over a fresh session."""
        return self.start(Session(self.index, self.key))


@dataclass(slots=True)
class ProgramSet:
    """The programs of one (workload, parameters, seed).

    ``digest`` identifies workload and parameters without the seed; skipped
    and repaired records are counted by reason. ``where`` gives the first
    place (file:line or file#record) of each reason.
    """

    programs: Sequence[ProgramSpec]
    name: str
    digest: str
    parameters: Mapping[str, object]
    rate: float | None
    """Default programs per second; None where recorded arrivals hold."""
    skipped: dict[str, int] = field(default_factory=dict)
    repaired: dict[str, int] = field(default_factory=dict)
    where: dict[str, str] = field(default_factory=dict)
    read: int = 0
    """Records in the input, 0 for generators."""
    longest: int | None = None
    """No call's prompt + output is longer (tokens); None where that is not known."""


class Workload(Protocol):
    """A generator of programs: ``chatbot``, ``mcts``, ..."""

    name: str
    default_preset: str

    def presets(self) -> list[str]:
        """Names of the parameter sets."""

    def build(
        self, n: int, seed: int, preset: str | None = None, parameters: Mapping[str, object] = {}
    ) -> ProgramSet:
        """``n`` programs, a pure function of the arguments. Raises WorkloadError."""


class Reader(Protocol):
    """Reads one file format into replay programs."""

    name: str

    def sniff(self, path: Path) -> str | None:
        """Why this looks like the format ("requests[] with hash_ids"), or None."""

    def read(self, path: Path, *, max_model_len: int, on_overflow: str) -> ProgramSet:
        """``on_overflow``: refuse, skip or truncate. Raises WorkloadError with file and field."""


class WorkloadError(ValueError):
    """Bad workload input: what was wrong, where, and what would be right.

    ``limit``: the context (tokens) that something did not fit, if that was what was wrong.
    """

    def __init__(self, message: str, limit: int | None = None) -> None:
        super().__init__(message)
        self.limit = limit


class NothingLeft(WorkloadError):
    """The input is fine, but every program was skipped or there is none."""

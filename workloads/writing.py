"""Writing programs in other people's formats, and counting what those cannot say.

One file per format in ``writers/`` with a module-level ``WRITER``; nothing else needs an
edit. A writer never drops anything in silence: what its format has no words for is counted
by kind in ``lost``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import NamedTuple, Protocol

from vocabulary import Segment, on_grid
from workloads import writers as folder
from workloads.base import ProgramSpec, WorkloadError
from workloads.dag import DagCall, ProgramDag
from workloads.dryrun import THINK, dry_run
from workloads.files import Tally
from workloads.parameters import nearest
from workloads.script import AbandonOp, CallOp, CancelOp, JoinOp, Op, Script, SpawnOp, TimeoutOp

FORK = "branch at the same time, written one after another"
AS_TOOL = "wait for a person, written as a tool"
DELAY_KIND = "delay, without saying whether a tool or a person took it"
DELAY = "tool or wait before a call"
FIRST_DELAY = "tool or wait before the first call"
LAST_DELAY = "tool or wait after the last call"
MODEL = "model of a call"
CLOCK = "timeout, cancellation or abandon"
ARRIVAL = "arrival of a program"
NO_ARRIVAL = "program without an arrival, written as arriving at 0"
SHARED = "prefix shared with another program"
OWN_PREFIX = "prefix shared with an earlier call"
EMPTY = "program without calls"
PROGRAM = "call that belongs to the program of the line before"
ROUNDED = "shared prefix that ends inside a block, known to whole blocks only"


class Dags:
    """The dry runs of some programs, one at a time: nothing is kept."""

    def __init__(self, specs: Sequence[ProgramSpec]) -> None:
        self.specs = specs

    def __len__(self) -> int:
        return len(self.specs)

    def __iter__(self) -> Iterator[ProgramDag]:
        return map(dry_run, self.specs)


class Writer(Protocol):
    """Writes one format."""

    name: str

    def lines(self, dags: Dags, name: str, lost: Tally) -> Iterator[str]:
        """The file's lines, without line ends; ``name`` is what the programs are called.

        ``lost`` counts what the format cannot say, with the programs it was lost of. Raises
        WorkloadError where nothing sensible can be written.
        """


@cache
def writers() -> Mapping[str, Writer]:
    """Every writer by name. Raises TypeError for a file of the folder that has none."""
    found: dict[str, Writer] = {}
    for module in sorted(m.name for m in iter_modules(folder.__path__)):
        thing = getattr(import_module(f"workloads.writers.{module}"), "WRITER", None)
        if thing is None:
            raise TypeError(f"workloads/writers/{module}.py has no WRITER")
        found[thing.name] = thing
    return found


def writer(name: str) -> Writer:
    """A writer by name. Raises WorkloadError naming the nearest."""
    if name not in writers():
        raise WorkloadError(f"no format {name!r} to write: {nearest(name, writers())}")
    return writers()[name]


def place(dag: ProgramDag) -> str:
    """How a loss names its program."""
    return f"program {dag.index}"


class Turn(NamedTuple):
    """A call of a program put in line; ``before`` are the seconds between it and the call before."""

    call: DagCall
    before: float


def milliseconds(seconds: float) -> float:
    """The shortest decimal number of milliseconds that is this time on the grid."""
    for digits in range(7):
        value = round(seconds * 1e3, digits)
        if on_grid(value / 1e3) == seconds:
            return value if digits else int(value)
    return seconds * 1e3


def in_line(dag: ProgramDag, lost: Tally, *says: str) -> list[Turn]:
    """The calls one after another, each after its ``before`` seconds; counts what is lost.

    ``says``: which of the kinds of loss above this format has words for.
    """

    def lose(kind: str) -> None:
        if kind not in says:
            lost.add(kind, place(dag))

    if not dag.calls:
        lose(EMPTY)
    for op in dag.script.walk():
        if isinstance(op, TimeoutOp | CancelOp | AbandonOp):
            lose(CLOCK)
        elif isinstance(op, SpawnOp):
            lose(FORK)
        elif isinstance(op, JoinOp):
            for _ in op.scripts[1:]:
                lose(FORK)
    for i, call in enumerate(dag.calls):
        if call.model:
            lose(MODEL)
        for name, seconds in call.tools:
            if seconds > 0 and (DELAY not in says or not i):
                lose(FIRST_DELAY if DELAY in says else DELAY)
            elif seconds > 0 and DELAY_KIND not in says:
                lose(DELAY_KIND)
            elif seconds > 0 and name == THINK:
                lose(AS_TOOL)
    if trailing(dag.script) > 0:
        lose(LAST_DELAY)
    return [Turn(call, call.delay_s) for call in dag.calls]


def trailing(script: Script) -> float:
    """Seconds of tools and waits behind the last call of a coroutine."""
    total = 0.0
    for op in reversed(script.ops):
        if _calls(op):
            return total
        total += getattr(op, "work_s", 0.0) + getattr(op, "seconds", 0.0)
    return 0.0  # a program without calls


def _calls(op: Op) -> bool:
    if isinstance(op, CallOp):
        return True
    scripts = op.scripts if isinstance(op, JoinOp) else [op.script] if hasattr(op, "script") else []
    return any(True for script in scripts for _ in script.calls())


class Owners:
    """Who has used a first segment: whether a prompt shares its start with another program."""

    def __init__(self) -> None:
        self._owner: dict[int, int] = {}

    def shared(self, dag: ProgramDag) -> bool:
        """Whether one of the program's prompts starts like one of an earlier program."""
        firsts = {call.prompt[0][0] for call in dag.calls}
        return any(self._owner.setdefault(first, dag.index) != dag.index for first in firsts)


def grown(calls: Sequence[DagCall]) -> Iterator[tuple[DagCall, int]]:
    """Each call with the tokens it keeps of the call before it in the list (prompt and reply)."""
    before: list[Segment] = []
    for call in calls:
        yield call, common(before, call.prompt)
        before = [*call.prompt, (call.output_id, call.output_tokens)]


def common(a: Iterable[Segment], b: Iterable[Segment]) -> int:
    """Leading tokens that two prompts share."""
    total = 0
    for (x, m), (y, n) in zip(a, b, strict=False):
        if x != y:
            break
        total += min(m, n)
        if m != n:
            break
    return total


class BlockIds:
    """Numbers for the blocks of prompts: equal numbers, equal tokens from the start on.

    The last block may be partial; it then has a number that no full block has.
    """

    def __init__(self, block: int) -> None:
        self.block = block
        self._ids: dict[tuple[object, ...], int] = {}

    def of(self, prompt: Iterable[Segment], *, partial: bool = True) -> list[int]:
        """The numbers of a prompt; ``partial``: of the incomplete last block, too."""
        found: list[int] = []
        pieces: list[tuple[int, int, int]] = []
        filled, before = 0, -1
        for segment, length in prompt:
            start = 0
            while start < length:
                end = min(length, start + self.block - filled)
                pieces.append((segment, start, end))
                filled, start = filled + end - start, end
                if filled == self.block:
                    before = self._id(before, pieces)
                    found.append(before)
                    pieces, filled = [], 0
        if pieces and partial:
            found.append(self._id(before, pieces))
        return found

    def _id(self, before: int, pieces: list[tuple[int, int, int]]) -> int:
        return self._ids.setdefault((before, *pieces), len(self._ids))


def first_arrivals(dags: Iterable[ProgramDag], lost: Tally) -> Iterator[tuple[ProgramDag, float]]:
    """Programs with their arrivals in seconds; one without is put at 0, and counted."""
    for dag in dags:
        if dag.arrival is None:
            lost.add(NO_ARRIVAL, place(dag))
        yield dag, dag.arrival or 0.0

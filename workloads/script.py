"""A program that has run: what each of its coroutines did, in order.

A script is the list of effects of one coroutine; joins, spawns and timeouts hold
the scripts of their coroutines. It is what a dry run records, what trace readers
build, what our own file format stores, and what ``replay`` runs.

Prompts are kept as differences: the first ``keep`` tokens of the context another
call left behind (its prompt and reply), then new segments.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from vocabulary import Segment
from workloads.session import CallId


@dataclass(slots=True, eq=False)
class CallOp:
    """One LLM call; lengths in tokens. ``prompt_tokens`` = ``keep`` + the length of ``new``."""

    thread: str
    index: int
    parents: tuple[CallId, ...]
    new: tuple[Segment, ...]
    output_id: int
    output_tokens: int
    prompt_tokens: int
    model: str = ""
    base: CallOp | None = None
    keep: int = 0

    @property
    def id(self) -> CallId:
        """Its identity in the program."""
        return (self.thread, self.index)

    @property
    def total(self) -> int:
        """Prompt and reply."""
        return self.prompt_tokens + self.output_tokens

    def prompt(self) -> list[Segment]:
        """The whole prompt."""
        chain: list[CallOp] = [self]
        while chain[-1].keep and chain[-1].base is not None:
            chain.append(chain[-1].base)
        context: list[Segment] = []
        for op, base in zip(reversed(chain), [None, *reversed(chain[1:])], strict=True):
            if base is not None:
                context.append((base.output_id, base.output_tokens))
                context = leading(context, op.keep)
            context.extend(op.new)
        return context


@dataclass(slots=True)
class ToolOp:
    """A tool, in seconds of one core."""

    name: str
    work_s: float


@dataclass(slots=True)
class ThinkOp:
    """A wait, in seconds."""

    seconds: float


@dataclass(slots=True, eq=False)
class JoinOp:
    """Coroutines that run concurrently and are waited for."""

    scripts: list[Script]


@dataclass(slots=True, eq=False)
class SpawnOp:
    """A coroutine nobody waits for; ``task`` is its number in the program."""

    script: Script
    task: int


@dataclass(slots=True, eq=False)
class CancelOp:
    """Cancels a spawned coroutine."""

    task: int


@dataclass(slots=True, eq=False)
class TimeoutOp:
    """A coroutine that may take ``seconds``."""

    seconds: float
    script: Script


@dataclass(slots=True, eq=False)
class AbandonOp:
    """The program ends here."""


Op = CallOp | ToolOp | ThinkOp | JoinOp | SpawnOp | CancelOp | TimeoutOp | AbandonOp


@dataclass(slots=True, eq=False)
class Script:
    """One coroutine. ``cleanup`` is what it did after it was cancelled."""

    ops: list[Op] = field(default_factory=list)
    cleanup: list[Op] | None = None

    def walk(self) -> Iterator[Op]:
        """Every operation, of inner scripts too, in the order they are written."""
        for op in [*self.ops, *(self.cleanup or ())]:
            yield op
            for script in inner(op):
                yield from script.walk()

    def calls(self) -> Iterator[CallOp]:
        """Every call."""
        return (op for op in self.walk() if isinstance(op, CallOp))


def inner(op: Op) -> Sequence[Script]:
    """The scripts an operation starts."""
    if isinstance(op, JoinOp):
        return op.scripts
    return (op.script,) if isinstance(op, (SpawnOp, TimeoutOp)) else ()


def leading(context: Iterable[Segment], tokens: int) -> list[Segment]:
    """The first ``tokens`` tokens of a context."""
    kept: list[Segment] = []
    for segment in context:
        if tokens <= 0:
            break
        length = segment[1]
        kept.append(segment if length <= tokens else (segment[0], tokens))
        tokens -= length
    return kept

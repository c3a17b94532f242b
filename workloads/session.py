"""A program is plain Python that awaits effects on a session and knows no clock.

    async def agent(s: Session) -> None:
        await s.call(new=800, output=120)
        await s.tool("search", 0.9)
        await s.join(*(branch(s.fork()) for _ in range(5)))

It runs unchanged under the virtual-time driver, a live driver, and the dry
run. A driver resumes the coroutine with the effect's result: a Reply for a
call, the list of results for a join, a Task for a spawn.
"""

from __future__ import annotations

from collections.abc import Coroutine, Generator, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from vocabulary import Segment
from workloads.keys import mix

_MASK = (1 << 64) - 1
_STRIDE = 0x9E3779B97F4A7C15  # odd: the ids of one key are distinct; other keys are far away

Program = Coroutine[Any, Any, Any]
CallId = tuple[str, int]
"""(thread path, number of the call in its thread): a call's identity in its program."""


class Reply(NamedTuple):
    """What a program learns from a call: that it happened, and how long it was."""

    output_tokens: int
    output_id: int


class Cancelled(Exception):
    """Raised inside a task whose program cancelled it."""


class TimedOut(Exception):
    """Raised in the program when ``Session.timeout`` ran out of time."""


class Effect:
    """What a program yields to its driver."""

    __slots__ = ()

    def __await__(self) -> Generator[Effect, Any, Any]:
        return (yield self)


class CallEffect(Effect):
    """One LLM call: the whole prompt as segments, and the scripted reply length (tokens)."""

    __slots__ = (
        "index", "model", "output_id", "output_tokens", "parents",
        "prompt", "prompt_tokens", "session", "thread",
    )  # fmt: skip

    def __init__(self, session: Session, output_tokens: int, model: str) -> None:
        self.session = session
        self.thread = session.thread
        self.index = session.calls
        session.calls += 1
        self.parents = session.parents
        self.prompt = tuple(session.context)
        self.prompt_tokens = session.tokens
        self.output_id = session.new_id()
        self.output_tokens = output_tokens
        self.model = model

    def __await__(self) -> Generator[Effect, Any, Reply]:
        yield self
        return self.session.replied(self)


@dataclass(slots=True, eq=False)
class ToolEffect(Effect):
    """A tool call that needs ``work_s`` seconds of one core."""

    name: str
    work_s: float


@dataclass(slots=True, eq=False)
class ThinkEffect(Effect):
    """A person (or anything that needs no core) takes ``seconds``."""

    seconds: float


@dataclass(slots=True, eq=False)
class JoinEffect(Effect):
    """Run coroutines concurrently; resumes with the list of their results."""

    programs: list[Program]


@dataclass(slots=True, eq=False)
class SpawnEffect(Effect):
    """Start a coroutine nobody waits for; resumes at once with a Task."""

    program: Program


@dataclass(slots=True, eq=False)
class CancelEffect(Effect):
    """Stop a spawned task; its calls are aborted and charged."""

    task: Task


@dataclass(slots=True, eq=False)
class TimeoutEffect(Effect):
    """Run a coroutine; raise TimedOut in the program after ``seconds``."""

    seconds: float
    program: Program


@dataclass(slots=True, eq=False)
class AbandonEffect(Effect):
    """The client leaves: every open call of the program is aborted, the program ends."""


class Task:
    """A handle on a spawned coroutine."""

    __slots__ = ("done", "driver_state")

    def __init__(self) -> None:
        self.done = False
        self.driver_state: Any = None


class Session:
    """One thread of a program: a growing context and the effects that use it.

    ``context`` is the list of segments of the next prompt so far; ``tokens``
    its length. ``key`` names this thread's random stream and segment ids.
    """

    __slots__ = ("calls", "context", "key", "parents", "program", "thread", "tokens",
                 "_forks", "_ids", "_open")  # fmt: skip

    def __init__(self, program: int, key: int, thread: str = "") -> None:
        self.program = program
        self.key = key
        self.thread = thread
        self.context: list[Segment] = []
        self.tokens = 0
        self.calls = 0
        self.parents: tuple[CallId, ...] = ()
        self._ids = 0
        self._forks = 0
        self._open: list[Session] = []

    def new_id(self) -> int:
        """A segment id no other program, thread or call has."""
        self._ids += 1
        return (self.key + self._ids * _STRIDE) & _MASK

    def add(self, segment: Segment) -> None:
        """Append a segment to the context (a shared system prompt, a tool result)."""
        if segment[1] < 0:
            raise ValueError(f"segment length must not be negative, got {segment[1]}")
        if segment[1]:
            self.context.append(segment)
            self.tokens += segment[1]

    def edit(self, context: Iterable[Segment]) -> None:
        """Replace the context: compaction, truncation, or a prompt built elsewhere."""
        self.context = [s for s in context if s[1]]
        self.tokens = sum(length for _, length in self.context)

    def call(
        self, new: int | Iterable[Segment] = 0, *, output: int, model: str = ""
    ) -> CallEffect:
        """Append ``new`` (tokens of fresh text, or segments) and ask the model.

        ``output`` is the reply's length in tokens, at least 1. Awaiting it
        appends the reply to the context. Raises ValueError on an empty prompt
        or an empty reply.
        """
        if isinstance(new, int):
            self.add((self.new_id(), new))
        else:
            for segment in new:
                self.add(segment)
        if self.tokens < 1 or output < 1:
            raise ValueError(
                f"a call needs a prompt and a reply of at least 1 token, got {self.tokens} "
                f"and {output} (program {self.program}, thread {self.thread!r})"
            )
        return CallEffect(self, output, model)

    def replied(self, call: CallEffect) -> Reply:
        """Take the reply into the context; used by ``await`` and by drivers."""
        self.context.append((call.output_id, call.output_tokens))
        self.tokens += call.output_tokens
        self.parents = ((call.thread, call.index),)
        return Reply(call.output_tokens, call.output_id)

    def fork(self, *, detached: bool = False) -> Session:
        """A new thread that starts from this context; ``detached`` ones are not joined."""
        path = f"{self.thread}.{self._forks}" if self.thread else str(self._forks)
        child = Session(self.program, mix(self.key, self._forks), path)
        self._forks += 1
        child.context = list(self.context)
        child.tokens = self.tokens
        child.parents = self.parents
        if not detached:
            self._open.append(child)
        return child

    async def join(self, *programs: Program) -> list[Any]:
        """Run ``programs`` (over forks of this session) concurrently and wait for all."""
        children, self._open = self._open, []
        results: list[Any] = await JoinEffect(list(programs))
        parents = dict.fromkeys(p for child in children for p in child.parents)
        self.parents = tuple(parents) or self.parents
        return results

    def tool(self, name: str, work_s: float) -> ToolEffect:
        """Use a tool that needs ``work_s`` seconds of one core."""
        return ToolEffect(name, work_s)

    def think(self, seconds: float) -> ThinkEffect:
        """Wait for a person."""
        return ThinkEffect(seconds)

    def spawn(self, program: Program) -> SpawnEffect:
        """Start ``program`` (over ``fork(detached=True)``) without waiting for it."""
        return SpawnEffect(program)

    def cancel(self, task: Task) -> CancelEffect:
        """Cancel a spawned task."""
        return CancelEffect(task)

    def timeout(self, seconds: float, program: Program) -> TimeoutEffect:
        """Run ``program`` for at most ``seconds``; raises TimedOut."""
        return TimeoutEffect(seconds, program)

    def abandon(self) -> AbandonEffect:
        """Leave: the program ends here and its open calls are aborted."""
        return AbandonEffect()

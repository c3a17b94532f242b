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
from functools import partial
from typing import Any, NamedTuple

from vocabulary import Body, Segment, segments_of
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


_reply = partial(tuple.__new__, Reply)  # a third of the time of Reply(...): one a call


class Cancelled(Exception):
    """Raised inside a task whose program cancelled it."""


class TimedOut(Exception):
    """Raised in the program when ``Session.timeout`` ran out of time."""


class Effect:
    """What a program yields to its driver."""

    __slots__ = ()

    def __await__(self) -> Generator[Effect, Any, Any]:
        return (yield self)


class CallEffect(Effect, Body):
    """One LLM call: the whole prompt as segments, and the scripted reply length (tokens).

    Made by ``Session.call``. It is the engine's ``Body``, too, so that a driver need not copy it.
    """

    __slots__ = ("index", "model", "parents", "prompt_tokens", "session", "thread")

    def __init__(self, session: Session, output_tokens: int, model: str, output_id: int) -> None:
        self.session = session
        self.thread = session.thread
        self.index = index = session.calls
        session.calls = index + 1
        self.parents = session.parents
        self.prompt_tokens = tokens = session.tokens
        self.segments = n = session.segments
        self.output_id = output_id
        self.output_tokens = output_tokens
        self.model = model
        ids = session.ids
        if len(ids) > n:
            session.part()
            ids = session.ids
        ids.append(output_id)
        self.ids = ids
        self.ends = ends = session.ends
        ends.append(tokens + output_tokens)

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

    The next prompt is the first ``segments`` of ``ids``, which end at ``ends``;
    ``tokens`` is its length. Calls and forks use the same two lists: whoever finds
    something behind its own segments goes on in a copy (``part``). ``key``
    names this thread's random stream and segment ids.
    """

    __slots__ = ("_forks", "_made", "_open", "calls", "ends", "ids", "key", "parents", "program",
                 "segments", "thread", "tokens")  # fmt: skip

    def __init__(self, program: int, key: int, thread: str = "") -> None:
        self.program = program
        self.key = key
        self.thread = thread
        self.ids: list[int] = []
        self.ends: list[int] = []
        self.segments = 0
        self.tokens = 0
        self.calls = 0
        self.parents: tuple[CallId, ...] = ()
        self._made = 0
        self._forks = 0
        self._open: list[Session] = []

    @property
    def context(self) -> list[Segment]:
        """A copy of the next prompt so far."""
        return segments_of(self.ids, self.ends, self.segments)

    def new_id(self) -> int:
        """A segment id no other program, thread or call has."""
        self._made += 1
        return (self.key + self._made * _STRIDE) & _MASK

    def part(self) -> None:
        """Go on in lists of one's own: what follows in the shared ones is not of this thread."""
        self.ids = self.ids[: self.segments]
        self.ends = self.ends[: self.segments]

    def add(self, segment: Segment) -> None:
        """Append a segment to the context (a shared system prompt, a tool result)."""
        name, length = segment
        if length < 0:
            raise ValueError(f"segment length must not be negative, got {length}")
        if length:
            if len(self.ids) > self.segments:
                self.part()
            self.ids.append(name)
            self.tokens += length
            self.ends.append(self.tokens)
            self.segments += 1

    def edit(self, context: Iterable[Segment]) -> None:
        """Replace the context: compaction, truncation, or a prompt built elsewhere."""
        self.ids, self.ends = [], []
        self.segments = self.tokens = 0
        for segment in context:
            self.add(segment)

    def call(
        self, new: int | Iterable[Segment] = 0, *, output: int, model: str = "", output_id: int | None = None
    ) -> CallEffect:
        """Append ``new`` (tokens of fresh text, or segments) and ask the model.

        ``output`` is the reply's length in tokens, at least 1. Awaiting it
        appends the reply, under a new id or ``output_id``, to the context.
        Raises ValueError on an empty prompt or an empty reply.
        """
        made = self._made + 1
        if isinstance(new, int):
            if new > 0:  # new_id and add, inlined: this runs once a call
                ids, n = self.ids, self.segments
                if len(ids) > n:
                    self.part()
                    ids = self.ids
                ids.append((self.key + made * _STRIDE) & _MASK)
                self.tokens = tokens = self.tokens + new
                self.ends.append(tokens)
                self.segments = n + 1
            elif new < 0:
                raise ValueError(f"segment length must not be negative, got {new}")
            made += 1
        else:
            for segment in new:
                self.add(segment)
            made = self._made + 1  # ``new`` may have asked for ids
        self._made = made
        if self.tokens < 1 or output < 1:
            raise ValueError(
                f"a call needs a prompt and a reply of at least 1 token, got {self.tokens} "
                f"and {output} (program {self.program}, thread {self.thread!r})"
            )
        if output_id is None:
            output_id = (self.key + made * _STRIDE) & _MASK
        return CallEffect(self, output, model, output_id)

    def replied(self, call: CallEffect) -> Reply:
        """Take the reply into the context; used by ``await`` and by drivers."""
        if call.ids is self.ids and call.segments == self.segments:
            self.segments += 1  # it stands there since the call was made
            self.tokens += call.output_tokens
        else:
            self.add((call.output_id, call.output_tokens))
        self.parents = ((call.thread, call.index),)
        return _reply((call.output_tokens, call.output_id))

    def fork(self, *, detached: bool = False) -> Session:
        """A new thread that starts from this context; ``detached`` ones are not joined."""
        path = f"{self.thread}.{self._forks}" if self.thread else str(self._forks)
        child = Session(self.program, mix(self.key, self._forks), path)
        self._forks += 1
        child.ids, child.ends = self.ids, self.ends
        child.segments, child.tokens = self.segments, self.tokens
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

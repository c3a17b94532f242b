"""The contracts: what a policy decides and what an engine offers.

Policies do no I/O, read no clock and draw no random numbers: time is an
argument. They are never polled per step: they hand out deadlines (a quantum
of service, a due time), so a host does nothing between two of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

from vocabulary import (
    Body,
    Call,
    Decision,
    EngineView,
    Finished,
    Segment,
    Slot,
    Snapshot,
    Step,
    Usage,
)


@runtime_checkable
class Scheduler(Protocol):
    """Order, demotion and promotion of the calls of one engine.

    ``unit`` says how ``served`` and quanta count: ``step`` (engine steps in
    which the call got at least one token), ``s`` (the sum of those steps'
    durations) or ``token`` (tokens scheduled for the call).
    ``tracks_wait``: the host reports ``start`` and ``stop`` and asks for
    ``next_due``; a scheduler without anti-starvation saves that.
    ``clairvoyant``: may read ``Call.remaining`` and ``Call.output``.
    A scheduler with a class attribute ``reads_cache = True`` has
    ``attach(cache: CacheView)``, which its engine calls once, before any call.
    """

    name: str
    unit: str
    clairvoyant: bool
    tracks_wait: bool

    def arrive(self, call: Call, snap: Snapshot, now: float) -> Slot:
        """Where the call waits; ``snap`` is its program's row when it was routed."""

    def start(self, call: Call, now: float) -> None:
        """The call entered the batch at ``now``."""

    def stop(self, call: Call, usage: Usage, now: float) -> None:
        """The call was preempted at ``now`` and waits again, in its slot."""

    def expire(self, call: Call, served: float, now: float) -> Slot:
        """Asked at the first step boundary where the slot's quantum is used up."""

    def next_due(self) -> float:
        """Earliest time at which ``due`` may have something to say; INF if never."""

    def due(self, now: float) -> list[tuple[Call, Slot]]:
        """Waiting calls that move (anti-starvation), asked once ``next_due() <= now``."""

    def finish(self, call: Call, usage: Usage, now: float) -> None:
        """The call has all its tokens; its program is charged."""

    def abort(self, call: Call, usage: Usage, now: float) -> None:
        """The call was cancelled; what it received is charged all the same."""

    def end(self, program: int, now: float) -> None:
        """The program is over; forget its row."""


@runtime_checkable
class Router(Protocol):
    """Which engine a call goes to.

    One with a class attribute ``reads_prompt = True`` finds ``Call.prompt`` filled; one with
    a method ``end(program)`` is told when a program is over.
    """

    name: str

    def route(self, call: Call, engines: Sequence[EngineView], now: float) -> int:
        """Return the id of a live engine. Raises LookupError if none is alive."""


class Resume(NamedTuple):
    """A program whose held calls go on, all of them; ``engine``: where to, None: the router decides."""

    program: int
    engine: int | None = None


class Pause(NamedTuple):
    """A program whose next calls are held until it is resumed. ``engine``: where it ran.

    ``frees_kv``: the engine is to give up what it left there before all else; else only its sending stops.
    """

    program: int
    engine: int
    frees_kv: bool = False


@runtime_checkable
class Gate(Protocol):
    """Whether a program's call may go to an engine now, before the router is asked.

    A held call waits at the door, which is wait, until its program is resumed. The host asks ``tick`` after
    every ``finish``, ``abort`` and ``end``, and at ``next_tick``.

    Optional, by class attributes:
    ``places = True``: has ``place(call, engines, now) -> int | None``, asked for a call that goes on at once:
    its engine, None: the router decides.
    ``counts = True``: has ``count(call, tokens, now, prompt=None)``, told before ``finish`` and ``abort`` how
    long the call's context is now, reply included (tokens; None where the engine did not say), and how many
    of them are its prompt, where ``call.prompt_tokens`` was the host's estimate.
    ``reads_prompt = True``: finds ``Call.prompt`` filled where the host knows it.
    An attribute ``events`` is a list of ``vocabulary.GateEvent`` that the host empties into its log.
    """

    name: str

    def request(self, call: Call, engines: Sequence[EngineView], now: float) -> bool:
        """A call arrived: True, it goes on; False, it is held."""

    def finish(self, call: Call, usage: Usage, now: float) -> None:
        """A call that went on has its reply."""

    def abort(self, call: Call, usage: Usage, now: float) -> None:
        """A call left without one; a held one, too, which received nothing."""

    def end(self, program: int, now: float) -> None:
        """The program is over."""

    def next_tick(self) -> float:
        """Earliest time (s) at which ``tick`` may have something to say by itself; INF if never."""

    def tick(self, engines: Sequence[EngineView], now: float) -> Sequence[Resume | Pause]:
        """Programs whose held calls go on, and programs that pause, in that order of doing."""


class Away(NamedTuple):
    """A thread of a program whose call has just ended, and which is away now.

    ``tokens``: its context, in the cache of ``engine`` as far as it is not evicted; ``tool``: what runs now
    ("" unknown, "human" a person); ``output_tokens``: the reply's. ``duration``: how long it will be away
    (s), only for a policy that declares itself clairvoyant. ``prompt``: the context without the reply, only
    for one that declares ``reads_prompt``.
    """

    program: int
    thread: str
    tokens: int
    tool: str = ""
    output_tokens: int = 0
    engine: int = 0
    duration: float | None = None
    prompt: tuple[Segment, ...] = ()


class Kept(NamedTuple):
    """KV that is kept for a thread of a program while it is away: ``tokens`` until ``until`` (s)."""

    program: int
    thread: str
    tokens: int
    until: float
    priority: int = 0


@runtime_checkable
class Retention(Protocol):
    """What becomes of a program's KV while it is away. Asked when a call ends, never in between.

    One object per deployment. Optional, by class attributes:
    ``clairvoyant = True``: finds ``Away.duration``.
    ``reads_prompt = True``: finds ``Away.prompt`` where the host knows it.
    ``watches = True``: has ``look(view, waiting_tokens, now)``, told right before ``idle`` how full the
    thread's engine is and how many prompt tokens wait there or at the door for it; ``called(program, thread,
    now)``, when the thread makes its next call, from which on it is no longer away; ``back(program, thread,
    cached_tokens, prompt_tokens, now)``, when that call has found ``cached_tokens`` of its prompt (at its
    admission, or at its end, where that is when the host learns it); and ``end(program, now)``.
    An attribute ``firm``: whether newcomers wait for what is kept (``Keeping.firm``); then ``idle`` must
    never say INF, since a thread may never come back.
    An attribute ``events`` is a list of ``vocabulary.KeepEvent`` that the host empties into its log.
    """

    name: str

    def idle(self, away: Away, now: float) -> float:
        """Until when (s) what the thread left is kept.

        INF is possible where it is not firm, ``now`` or earlier leaves it to the cache's order.
        """

    def victims(self, candidates: Sequence[Kept], now: float) -> Sequence[Kept]:
        """In which order kept KV is given up where a call lacks blocks."""


class Environment(Protocol):
    """When the sandbox of a program's tools is prepared and torn down.

    The host prepares on a pool of cores, and asks again with every event. Costs are knobs of the policy:
    ``init_s`` (work of one core, s), ``cores``, ``disk_gb`` per sandbox, ``ports`` per sandbox and how many
    there are (``most_ports``), ``teardown_s``, ``shared_gb`` (an image that all share, kept once).
    """

    name: str

    def arrive(self, program: int, now: float) -> bool:
        """A program is here: prepare its sandbox now?"""

    def held(self, program: int, ahead: int, now: float) -> bool:
        """A gate holds it with ``ahead`` programs before it: prepare now?"""

    def resume(self, program: int, now: float) -> bool:
        """The gate let it in: prepare now?"""

    def keep(self, program: int, now: float) -> float:
        """It is over: until when (s) its sandbox stays; ``now``: torn down at once, INF: never."""


class Keeping(Protocol):
    """What an engine with ``EngineConfig.retains`` offers beside ``Engine``.

    ``victims``: asked where a call lacks blocks and KV is kept; None: smallest priority first, then
    earliest deadline. Kept KV counts as free for admission, displacement and growth: nobody waits and
    nobody is preempted because of it. Unless it is ``firm``: then a waiting call for whose thread nothing
    is kept gets none of it while anything runs, and waits. It still goes to running calls that grow, to
    calls whose own thread's KV is kept, and to the first waiting call where nothing runs. What is kept ends
    at its deadline, but for calls that wait with no such newcomer before them: they are back in time.
    """

    victims: Callable[[Sequence[Kept], float], Sequence[Kept]] | None
    firm: bool

    def retain(self, program: int, thread: str, until: float, priority: int, now: float) -> int:
        """Keep what the thread's last call left until ``until`` (s) or its next call; blocks kept."""

    def release(self, program: int, now: float) -> int:
        """Back to the cache's order; threads released."""

    def drop(self, program: int, now: float) -> int:
        """Release, and evict what it left before all else; blocks moved to the front."""

    def waiting_tokens(self) -> int:
        """Prompt tokens of the calls that wait here for admission."""


class LatencyModel(Protocol):
    """How long one engine step takes; all results in seconds on the time grid."""

    name: str

    def step(self, prefills: Sequence[tuple[int, int]], n_decode: int, sum_ctx: int) -> float:
        """One step.

        ``prefills``: (new tokens, tokens already in KV) per prefilling call.
        ``n_decode`` calls decode one token each; ``sum_ctx`` is the sum of
        their context lengths in tokens, the new token included.
        """

    def decode_line(self, n_decode: int, sum_ctx: int) -> tuple[float, float, float]:
        """Pure decode steps as a line: (a, b, limit).

        ``on_grid(a + b * c) == step((), n_decode, c)`` for
        ``sum_ctx <= c < limit``, bit for bit.
        """


class TransferModel(Protocol):
    """How long it takes to move KV blocks between GPU and host memory."""

    def seconds(self, blocks: int) -> float:
        """All blocks one step moves in one direction, on the time grid; 0 for 0 blocks."""


class CacheView(Protocol):
    """What a scheduler that declares ``reads_cache`` may ask of its engine."""

    def prefix(self, call: Call) -> Sequence[Segment]:
        """The part of a waiting call's prompt that is in the GPU's prefix cache now.

        Whole blocks, at most (tokens - 1) // 16 of them, as segments: two calls
        share a cached prefix exactly as far as their (id, offset) pairs agree.
        """


class Engine(Protocol):
    """A step-driven engine on virtual time. See docs/engine.md for the rules.

    The host delivers every event with time <= t before it lets a step start
    at t. Steps that start before ``until`` may end after it; their results
    count from their end, and no policy hears of them before (``collect``).
    """

    id: int
    name: str
    steps: list[Step]
    decisions: list[Decision]

    def submit(self, call: Call, body: Body, snap: Snapshot, now: float) -> None:
        """Raises ValueError if the call can never fit (model length or KV)."""

    def abort(self, call: Call, now: float) -> Finished | None:
        """Take the call out; None if it is not here (any more)."""

    def clock(self) -> float:
        """When the next step starts (the end of the last one); INF when idle."""

    def horizon(self) -> float:
        """No call finishes before this time, if nothing is submitted or aborted."""

    def advance(self, until: float) -> bool:
        """Run steps that start before ``until``, up to the first that finishes calls.

        True if it came to that: the host calls ``collect`` at ``results_at()``,
        after everything that happens before, and does not advance until then.
        """

    def collect(self) -> list[Finished]:
        """The end of a step that finished calls: policies are told now; rows in batch order."""

    def results_at(self) -> float:
        """End time of the last step run."""

    def end_program(self, program: int, now: float) -> None:
        """The program is over: pass it on to the scheduler."""

    def view(self) -> EngineView:
        """What a router sees."""

    def stats(self) -> dict[str, float]:
        """Totals so far, under the names in docs/engine.md (Totals): counts, tokens, seconds.

        All engines agree on them exactly, but for ``kv_block_seconds`` (blocks in use times
        seconds), which ``sim`` integrates across a decode jump as if blocks came evenly.
        """

    def close(self) -> None:
        """Release what the engine holds (processes); it is not used again."""

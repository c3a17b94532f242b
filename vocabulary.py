"""The words every room shares: calls, slots, usage, and the time grid.

Standard library only: this module and ``systems/`` policies are mounted into
vLLM images. Units: seconds, tokens, 16-token KV blocks.

Time is a float in seconds on a grid of 2**-30 s (0.93 ns). Sums and
differences of grid times are exact below 2**23 s (97 days), so the order in
which durations are added can never change a result.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

BLOCK = 16
"""Tokens per KV block (vLLM's GPU default)."""

INF = float("inf")
GRID = 2.0**-30
_ROUND = 1.5 * 2.0**22  # adding it pushes every bit below 2**-30 out of a double
_TOP = 2.0**21  # the trick above rounds correctly below this

Segment = tuple[int, int]
"""(segment id, length in tokens). A segment always starts at its own offset 0;
two prompts share a prefix exactly as far as their (id, offset) pairs agree."""


def on_grid(seconds: float) -> float:
    """Round a duration or a time to the grid (half to even).

    Raises ValueError for negative or non-finite input, or beyond 2**21 s.
    """
    if not 0.0 <= seconds < _TOP:
        raise ValueError(f"{seconds!r} s is not a time between 0 and {_TOP:.0f} s")
    return (seconds + _ROUND) - _ROUND


@dataclass(slots=True, eq=False)
class Call:
    """One LLM call as a policy may see it. Its output length is not here.

    ``seq`` is the order of submission in the deployment (unique, increasing).
    ``remaining`` is the program's remaining work in output tokens, this call
    included, ``output`` this call's; None unless the scheduler declares itself
    clairvoyant. ``prompt`` is filled only for routers that declare ``reads_prompt``.
    ``kept``: tokens that were kept for its thread when it was made (systems.protocols.Retention).
    """

    seq: int
    program: int
    thread: str
    index: int
    prompt_tokens: int
    model: str = ""
    parents: tuple[tuple[str, int], ...] = ()
    remaining: float | None = None
    output: float | None = None
    prompt: tuple[Segment, ...] = ()
    kept: int = 0


class Body:
    """What only the engine sees: the prompt, and how many tokens will come.

    Segment ``ids[i]`` ends at token ``ends[i]``; the first ``segments`` are the
    prompt, the next one is the reply. The lists may go on behind it: a session
    that only appends shares them with all its calls, so that a call costs the
    same however long its prompt is. Nobody changes what is in them.
    """

    __slots__ = ("ends", "ids", "output_id", "output_tokens", "segments")

    def __init__(self, prompt: Iterable[Segment], output_id: int, output_tokens: int) -> None:
        self.ids: list[int] = []
        self.ends: list[int] = []
        end = 0
        for segment, length in (*prompt, (output_id, output_tokens)):
            end += length
            self.ids.append(segment)
            self.ends.append(end)
        self.segments = len(self.ids) - 1
        self.output_id = output_id
        self.output_tokens = output_tokens

    @property
    def prompt(self) -> tuple[Segment, ...]:
        """The prompt's segments, in order."""
        return tuple(segments_of(self.ids, self.ends, self.segments))


def segments_of(ids: Sequence[int], ends: Sequence[int], n: int) -> list[Segment]:
    """The first ``n`` segments of a sequence given by ids and ends."""
    return [(ids[i], ends[i] - (ends[i - 1] if i else 0)) for i in range(n)]


class Snapshot(NamedTuple):
    """A program's row in the front end's process table when a call is routed.

    ``service`` is in the scheduler's unit, ``exec_s`` and ``wait`` in seconds.
    """

    service: float = 0.0
    wait: float = 0.0
    exec_s: float = 0.0


class Slot(NamedTuple):
    """A place in the host's order: calls run in (level, key, call.seq) order.

    A waiting call displaces running calls of a strictly worse (larger) level,
    never of its own. ``quantum`` is the service, in the scheduler's unit, the
    call may receive from now on before ``expire`` is asked.
    """

    level: int
    key: float
    quantum: float = INF


class Usage(NamedTuple):
    """What a call has received since it arrived.

    ``served`` is in the scheduler's unit; ``exec_s`` + ``wait_s`` is the time
    since arrival, in seconds.
    """

    served: float
    exec_s: float
    wait_s: float


class GateEvent(NamedTuple):
    """What a gate did to a program, and why. ``engine`` -1: none; ``tokens``: KV that it is about.

    ``what``: admit, hold, mark (it pauses when its turn ends), unmark, pause, resume, force (let in against
    the rule), move (resumed on another engine), expire (its lease ended), release. ``reason``: a word or two.
    """

    time: float
    program: int
    engine: int
    what: str
    reason: str
    tokens: int


class KeepEvent(NamedTuple):
    """What a retention policy thought when a call ended, and what came of it. Prices in block-seconds.

    ``what``: keep or evict (at the call's end), back or gone (how it ended). ``until``: kept until (s).
    ``regret``: after the fact, what the choice cost more than the better one; NaN until then.
    """

    time: float
    program: int
    thread: str
    what: str
    tool: str
    tokens: int
    until: float
    keep_price: float
    evict_price: float
    regret: float


class EngineView(NamedTuple):
    """What a router or gate sees of an engine; KV in blocks.

    ``calls`` are in the system there, ``running`` of them in the batch;
    ``kv_cached`` blocks are free but still hold cached content.
    """

    id: int
    alive: bool
    calls: int
    kv_used: int
    kv_total: int
    running: int = 0
    kv_cached: int = 0


@dataclass(slots=True, eq=False)
class Finished:
    """One finished or aborted call: a row of the event log. Times in seconds.

    ``t_end - t_arrive == prefill_s + reprefill_s + decode_s + swap_s + wait_s``
    exactly; ``swap_s`` is what moving KV to or from host memory added to its steps, ``hold_s`` the part of
    ``wait_s`` in which a gate held it at the door.
    ``cached_tokens`` are the prefix hits of the first admission,
    ``reprefill_tokens`` what preemption made the engine compute again.
    ``t_first_sched`` and ``t_first_token`` are INF where it never came to that.
    """

    call: Call
    engine: int
    t_arrive: float
    t_first_sched: float = INF
    t_first_token: float = INF
    t_end: float = INF
    output_tokens: int = 0
    cached_tokens: int = 0
    prefill_tokens: int = 0
    reprefill_tokens: int = 0
    prefill_s: float = 0.0
    reprefill_s: float = 0.0
    decode_s: float = 0.0
    swap_s: float = 0.0
    wait_s: float = 0.0
    hold_s: float = 0.0
    served: float = 0.0
    steps: int = 0
    preemptions: int = 0
    demotions: int = 0
    promotions: int = 0
    level: int = 0
    aborted: bool = False


class Decision(NamedTuple):
    """Who decided what, when: ``rule`` is one of arrive, expire, promote,
    displace, hold, evict, admit, finish, abort; ``call`` is ``Call.seq``."""

    time: float
    engine: int
    call: int
    rule: str
    level: int
    value: float


class Step(NamedTuple):
    """One engine step, recorded on request: (call seq, tokens) in batch order."""

    start: float
    seconds: float
    batch: tuple[tuple[int, int], ...]
    preempted: tuple[int, ...] = ()


PREEMPTIONS = ("recompute", "swap", "hold")
"""What becomes of a preempted call's KV: dropped, moved to host memory, kept while there is room."""


@dataclass(slots=True)
class EngineConfig:
    """Engine limits and options, vLLM's names. ``kv_blocks`` are usable 16-token blocks.

    Those from ``chunked_prefill`` on are explained in docs/engine-options.md;
    ``host_blocks`` is the room in host memory, in 16-token blocks. ``retains``: the engine can keep and
    drop what programs left (systems.protocols.Keeping).
    Raises ValueError where vLLM would refuse the combination.
    """

    kv_blocks: int
    max_num_seqs: int = 256
    max_num_batched_tokens: int = 2048
    max_model_len: int = 131_072
    prefix_cache: bool = True
    chunked_prefill: bool = True
    schedule_every: int = 1
    preemption: str = "recompute"
    host_blocks: int = 0
    host_tier: bool = False
    retains: bool = False
    record_steps: bool = False
    record_decisions: bool = True
    extra: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        names = ("kv_blocks", "max_num_seqs", "max_num_batched_tokens", "max_model_len", "schedule_every")
        for name in names:
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.preemption not in PREEMPTIONS:
            raise ValueError(f"preemption must be one of {', '.join(PREEMPTIONS)}, got {self.preemption!r}")
        if self.host_blocks < 0:
            raise ValueError(f"host_blocks must not be negative, got {self.host_blocks}")
        if self.host_tier and not self.prefix_cache:
            raise ValueError("host_tier keeps evicted prefix-cache content: it needs prefix_cache")
        if self.max_num_batched_tokens < self.max_num_seqs:
            raise ValueError(
                f"max_num_batched_tokens ({self.max_num_batched_tokens}) must be at least "
                f"max_num_seqs ({self.max_num_seqs}): every running call needs a token per step"
            )


def blocks_for(tokens: int) -> int:
    """KV blocks that hold ``tokens`` tokens."""
    return -(-tokens // BLOCK)

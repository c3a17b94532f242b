"""A call inside the reference engine, and what one boundary gives it."""

from __future__ import annotations

from dataclasses import dataclass, field

from systems.engines.reference_kv import Block
from vocabulary import Body, Call, Finished, Segment, Slot, Usage

NO_SLOT = Slot(0, 0.0)
"""Of a call whose scheduler has not been asked yet."""


@dataclass(slots=True, eq=False)
class Job:
    """A call while it is here. ``row`` is its line of the event log as far as it got.

    ``computed`` tokens have their KV in ``blocks``; ``slot_served`` is
    ``row.served`` at the time the slot was given; ``prefilling`` holds until
    the first token after its admission. While it waits it may be ``held`` (it keeps
    its blocks) or have a copy of its first ``saved`` tokens in host memory.
    """

    call: Call
    body: Body
    slot: Slot
    row: Finished
    blocks: list[Block] = field(default_factory=list)
    computed: int = 0
    slot_served: float = 0.0
    prefilling: bool = True
    renewed: bool = False
    held: bool = False
    saved: int = 0
    admissions: int = 0

    @property
    def order(self) -> tuple[int, float, int]:
        """Smaller runs first."""
        return (self.slot.level, self.slot.key, self.call.seq)

    @property
    def rank(self) -> tuple[int, bool, float, int]:
        """Largest is displaced first; ``renewed`` calls before the others of their level."""
        return (self.slot.level, self.renewed, self.slot.key, self.call.seq)

    def outranks(self, running: Job) -> bool:
        """Whether this waiting call may take the place of ``running``."""
        level = running.slot.level
        behind = running.renewed and running.order > self.order
        return level > self.slot.level or (level == self.slot.level and behind)

    @property
    def tokens(self) -> int:
        """T of docs/engine.md: the prompt and the replies emitted so far."""
        return self.call.prompt_tokens + self.row.output_tokens

    @property
    def segments(self) -> tuple[Segment, ...]:
        """The content of those tokens."""
        return (*self.body.prompt, (self.body.output_id, self.row.output_tokens))

    @property
    def expired(self) -> bool:
        """Whether the quantum of its slot is used up."""
        return self.row.served - self.slot_served >= self.slot.quantum

    def take(self, slot: Slot) -> None:
        """Move to another slot, with a fresh quantum."""
        self.slot = slot
        self.slot_served = self.row.served
        self.row.level = slot.level

    def usage(self, now: float) -> Usage:
        """What it has received; all other time since it arrived is waiting."""
        row = self.row
        exec_s = row.prefill_s + row.reprefill_s + row.decode_s + row.swap_s
        return Usage(row.served, exec_s, now - row.t_arrive - exec_s)

    def charge(self, n: int, seconds: float, moving: float, unit: str) -> None:
        """It took part in a step with ``n`` tokens: ``seconds`` of work and ``moving`` KV."""
        row = self.row
        row.steps += 1
        row.served += {"step": 1.0, "s": seconds + moving, "token": float(n)}[unit]
        row.swap_s += moving
        if not self.prefilling:
            row.decode_s += seconds
        elif self.admissions > 1:
            row.reprefill_tokens += n
            row.reprefill_s += seconds
        else:
            row.prefill_tokens += n
            row.prefill_s += seconds

    def close(self, now: float) -> Usage:
        """It ends here, finished or aborted."""
        usage = self.usage(now)
        self.row.t_end, self.row.wait_s = now, usage.wait_s
        return usage


def order_of(job: Job) -> tuple[int, float, int]:
    """Sort key: smaller runs first, the largest is the worst."""
    return job.order


@dataclass(slots=True, eq=False)
class Batch:
    """What one pass at time ``now`` scheduled: tokens per job in batch order, what is left of B.

    ``preempted`` lists everybody preempted at this boundary, earlier passes included;
    ``is_pass``: policies may act; ``evicted``: KV ran out for the running.
    """

    now: float
    budget: int
    preempted: list[int]
    is_pass: bool = True
    tokens: dict[Job, int] = field(default_factory=dict)
    evicted: bool = False

    def put(self, job: Job, n: int) -> None:
        """Schedule ``n`` tokens of ``job``."""
        self.tokens[job] = n
        self.budget -= n

    def drop(self, job: Job) -> None:
        """``job`` leaves the batch, if it was in; its tokens return to the budget."""
        self.budget += self.tokens.pop(job, 0)

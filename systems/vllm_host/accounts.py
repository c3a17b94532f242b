"""What each call has received: the host's own books, since vLLM's queue time ends at the first admission."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple, Protocol

from vocabulary import INF, Call, Finished, Slot, Usage

_NUMBERS = tuple(f.name for f in fields(Finished) if f.name != "call")
Request = Any
"""vLLM's."""


class Totals(Protocol):
    """What a call gained that decoded one token in every step so far, had it been there from the first."""

    unit: str
    steps: int
    seconds: float


class Scheduled(NamedTuple):
    """A call's part in a step: ``computed`` tokens were in its KV, ``tokens`` more are scheduled.

    ``emits``: it brings its next token. ``admission``: which of its admissions it computes the prompt of
    (from 1), 0 if it decodes. ``first``: the call's very first step.
    """

    request: Request
    account: Account
    computed: int
    tokens: int
    emits: bool
    admission: int = 0
    first: bool = False


@dataclass(slots=True, eq=False)
class Account:
    """The books of one call, and the slot it stands in.

    ``since_slot`` is the service received since the slot was given (the
    scheduler's unit); ``fresh`` says that no step since its last admission is
    to bring a token, ``renewed`` that its slot was renewed at this boundary;
    ``place`` is its place among the running (larger came later), ``entry`` the number of its entry among the
    ledger's ranks that counts; ``order`` is what vLLM compares as
    ``Request.priority``, (level, key, seq); ``waits`` its log, (time in s, arrive|admit|hold|preempt|end).

    While it decodes one token in every step, only the totals grow, and ``since``
    holds those up to which it has been charged; ``settle`` brings it up to date.
    """

    row: Finished
    slot: Slot
    totals: Totals
    one_shot: bool = False
    in_batch: bool = False
    fresh: bool = True
    renewed: bool = False
    closed: bool = False
    admissions: int = 0
    place: int = 0
    entry: int = 0
    since_slot: float = 0.0
    since: tuple[int, float] | None = None
    waits: list[tuple[float, str]] = field(default_factory=list)
    call: Call = field(init=False)
    order: tuple[int, float, int] = field(init=False)

    def __post_init__(self) -> None:
        self.call = self.row.call
        self._stand(self.slot)

    def as_dict(self, request_id: str) -> dict[str, object]:
        """A JSON object for the call log: the row's numbers (INF as null), the waits, vLLM's request id."""
        numbers = {name: getattr(self.row, name) for name in _NUMBERS}
        return {
            "request_id": request_id,
            "program": self.call.program,
            "thread": self.call.thread,
            "index": self.call.index,
            **{name: None if value == INF else value for name, value in numbers.items()},
            "waits": self.waits,
        }

    @property
    def quantum_used(self) -> bool:
        """Whether ``expire`` is due (once settled)."""
        return self.since_slot >= self.slot.quantum

    def expire(self, slot: Slot) -> None:
        """Its quantum was used up: go on in ``slot``."""
        self.renewed = True
        self.row.demotions += slot.level > self.slot.level
        self._take(slot)

    def promote(self, slot: Slot) -> None:
        """It moved while it waited (it starved, or its place in the order changed): wait in ``slot``."""
        self.row.promotions += slot.level < self.slot.level
        self._take(slot)

    def _take(self, slot: Slot) -> None:
        self._stand(slot)
        self.since_slot = 0.0
        self.row.level = slot.level

    def _stand(self, slot: Slot) -> None:
        self.slot = slot
        self.order = (slot.level, slot.key, self.call.seq)

    def admit(self, cached: int, now: float) -> None:
        """It entered the batch with ``cached`` prompt tokens found in the prefix cache."""
        self.in_batch = self.fresh = True
        self.admissions += 1
        if self.admissions == 1:
            self.row.t_first_sched = now
            self.row.cached_tokens = cached
        self.waits.append((now, "admit"))

    def resume(self, now: float) -> None:
        """It re-entered the batch with the KV it had (hold)."""
        self.in_batch = True
        self.waits.append((now, "admit"))

    def leave(self, how: str, now: float) -> None:
        """It left the batch: ``how`` is preempt or hold."""
        self.in_batch = False
        self.row.preemptions += 1
        self.waits.append((now, how))

    def charge(self, part: Scheduled, seconds: float, now: float) -> None:
        """It took part in a step of ``seconds`` that ended at ``now``."""
        row = self.row
        unit = self.totals.unit
        row.steps += 1
        self._serve(1.0 if unit == "step" else seconds if unit == "s" else float(part.tokens))
        if not part.admission:
            row.decode_s += seconds
        elif part.admission == 1:
            row.prefill_s += seconds
            row.prefill_tokens += part.tokens
        else:
            row.reprefill_s += seconds
            row.reprefill_tokens += part.tokens
        if part.emits and row.t_first_token == INF:
            row.t_first_token = now

    def settle(self) -> None:
        """Charge what the totals have grown by since it was last charged from them: sums on the time grid."""
        if self.since is None:
            return
        totals = self.totals
        steps, seconds = totals.steps - self.since[0], totals.seconds - self.since[1]
        if steps:
            self.since = (totals.steps, totals.seconds)
            self.row.steps += steps
            self.row.decode_s += seconds
            self._serve(seconds if totals.unit == "s" else float(steps))

    def _serve(self, service: float) -> None:
        self.row.served += service
        self.since_slot += service

    def usage(self, now: float) -> Usage:
        """What it has received by ``now``; a step in flight is not in it."""
        self.settle()
        row = self.row
        exec_s = row.prefill_s + row.reprefill_s + row.decode_s
        return Usage(row.served, exec_s, now - row.t_arrive - exec_s)

    def close(self, output_tokens: int, aborted: bool, now: float) -> Usage:
        """It is over: complete the row and return the final usage."""
        usage = self.usage(now)
        row = self.row
        row.t_end, row.wait_s = now, usage.wait_s
        row.output_tokens, row.aborted = output_tokens, aborted
        self.in_batch, self.closed, self.since = False, True, None
        self.waits.append((now, "end"))
        return usage

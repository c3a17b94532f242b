"""What each call has received: the host's own books, since vLLM's queue time ends at the first admission."""

from __future__ import annotations

from dataclasses import dataclass, field, fields

from vocabulary import INF, Call, Finished, Slot, Usage

_NUMBERS = tuple(f.name for f in fields(Finished) if f.name != "call")


@dataclass(slots=True, eq=False)
class Account:
    """The books of one call, and the slot it stands in.

    ``since_slot`` is the service received since the slot was given (the
    scheduler's unit); ``fresh`` says that it has emitted nothing since its last
    admission, ``renewed`` that its slot was
    renewed at this boundary; ``waits`` is its log, (time in s, arrive|admit|hold|preempt|end).
    """

    row: Finished
    slot: Slot
    unit: str
    one_shot: bool = False
    in_batch: bool = False
    fresh: bool = True
    renewed: bool = False
    admissions: int = 0
    since_slot: float = 0.0
    waits: list[tuple[float, str]] = field(default_factory=list)

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
    def call(self) -> Call:
        """The call these books are about."""
        return self.row.call

    @property
    def order(self) -> tuple[int, float, int]:
        """(level, key, seq): what vLLM compares as ``Request.priority``."""
        return (self.slot.level, self.slot.key, self.row.call.seq)

    @property
    def quantum_used(self) -> bool:
        """Whether ``expire`` is due."""
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
        self.slot = slot
        self.since_slot = 0.0
        self.row.level = slot.level

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

    def charge(self, tokens: int, seconds: float, emits: bool, now: float) -> None:
        """It took part in a step of ``seconds`` that ended at ``now`` with ``tokens`` scheduled tokens."""
        row = self.row
        row.steps += 1
        served = 1.0 if self.unit == "step" else seconds if self.unit == "s" else float(tokens)
        row.served += served
        self.since_slot += served
        if not self.fresh:
            row.decode_s += seconds
        elif self.admissions == 1:
            row.prefill_s += seconds
            row.prefill_tokens += tokens
        else:
            row.reprefill_s += seconds
            row.reprefill_tokens += tokens
        if emits:
            self.fresh = False
            if row.t_first_token == INF:
                row.t_first_token = now

    def usage(self, now: float) -> Usage:
        """What it has received by ``now``."""
        row = self.row
        exec_s = row.prefill_s + row.reprefill_s + row.decode_s
        return Usage(row.served, exec_s, now - row.t_arrive - exec_s)

    def close(self, output_tokens: int, aborted: bool, now: float) -> Usage:
        """It is over: complete the row and return the final usage."""
        usage = self.usage(now)
        row = self.row
        row.t_end, row.wait_s = now, usage.wait_s
        row.output_tokens, row.aborted = output_tokens, aborted
        self.in_batch = False
        self.waits.append((now, "end"))
        return usage

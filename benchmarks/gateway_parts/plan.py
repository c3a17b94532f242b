"""What the gateway's fault script does, compares and concludes."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import NamedTuple

FAULTS = ("kill", "hang_metrics", "pause")


class Fault(NamedTuple):
    """At ``at`` (s), for ``for_s``."""

    at: float
    kind: str
    worker: int
    for_s: float


@dataclass(frozen=True)
class Plan:
    """What is done; all of it follows from ``seed`` but the times of a busy machine.

    ``linger``: the streams that are open at SIGTERM last longer than the gateway waits for them.
    """

    seed: int = 1
    seconds: float = 20.0
    agents: int = 24
    workers: int = 2
    every_s: float = 1.5
    system: str = "autellix"
    linger: bool = True

    def faults(self) -> list[Fault]:
        """One about each ``every_s``, the first a kill; they may overlap."""
        draw, at = random.Random(f"faults/{self.seed}"), 0.3
        found: list[Fault] = []
        while at < self.seconds:
            kind = draw.choice(FAULTS) if found else "kill"
            found.append(Fault(at, kind, draw.randrange(self.workers), draw.uniform(0.3, 1.2)))
            at += self.every_s * draw.uniform(0.5, 1.5)
        return found


@dataclass
class Verdict:
    """Checks in the order they were made: (name, held, what was seen)."""

    checks: list[tuple[str, bool, str]] = field(default_factory=list)

    def check(self, name: str, held: bool, seen: object) -> None:
        """One more."""
        self.checks.append((name, bool(held), str(seen)))

    @property
    def ok(self) -> bool:
        """Whether all held, of at least one."""
        return bool(self.checks) and all(held for _, held, _ in self.checks)

    def lines(self) -> list[str]:
        """For people."""
        return [f"{'ok    ' if held else 'FAILED'} {name}: {seen}" for name, held, seen in self.checks]


class Books(NamedTuple):
    """Who is in flight, as the engines, the gateway's table and its metrics say. ``names``: programs that
    have one (None: these engines cannot tell); ``calls``: requests; ``reasoning``: programs, by the gate too
    (None: it keeps no books)."""

    names: frozenset[str] | None
    calls: int
    table_names: frozenset[str]
    table_reasoning: int
    table_calls: int
    metric_reasoning: int
    metric_calls: int
    gate_reasoning: int | None = None

    def agree(self) -> bool:
        """Programs marked reasoning are those with requests in flight, by all of them."""
        same = (
            self.table_reasoning == self.metric_reasoning
            and self.calls == self.table_calls == self.metric_calls
            and self.gate_reasoning in (None, self.table_reasoning)
        )
        return same and (self.names is None or self.names == self.table_names)

    def __str__(self) -> str:
        return (
            f"requests: {self.calls} at engines, {self.table_calls} in the table, {self.metric_calls} in the "
            f"metrics; reasoning: {self.table_reasoning} in the table, {self.metric_reasoning} in the metrics"
            + ("" if self.gate_reasoning is None else f", {self.gate_reasoning} by the gate")
        )

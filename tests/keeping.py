"""A host that keeps, releases and drops what calls left, by a plan, and notes what engines answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass, replace
from functools import partial
from random import Random
from typing import Any

from hypothesis import strategies as st

from systems.process_table import ProcessTable
from systems.protocols import Kept, Scheduler
from tests.scenarios import EngineMaker, Host, Outcome, Scenario
from vocabulary import INF, Finished, on_grid

WAKE = 1
"""The kind of an event at which a host acts by itself (tests.scenarios)."""


@dataclass(frozen=True)
class Act:
    """``what`` is done to the program of a call ``delay`` s after the call ended; 0: at once."""

    what: str
    delay: float = 0.0
    seconds: float = 10.0
    priority: int = 0


def by_size(kept: Sequence[Kept], now: float) -> list[Kept]:
    """The largest first."""
    return sorted(kept, key=lambda one: (-one.tokens, one.program, one.thread))


def reluctant(kept: Sequence[Kept], now: float) -> list[Kept]:
    """Only every other program, one of them twice, and one that is not kept."""
    some = [one for one in kept if one.program % 2]
    return [*some[:1], *some, *[one._replace(program=99) for one in some]]


def turning(kept: Sequence[Kept], now: float) -> list[Kept]:
    """Another one first as time goes by."""
    turn = int(now) % max(1, len(kept))
    return [*kept[turn:], *kept[:turn]]


VICTIMS = {"default": None, "by size": by_size, "reluctant": reluctant, "turning": turning}


class KeepingHost(Host):
    """Does ``plan[seq % len(plan)]`` when call ``seq`` ends; ``notes``: time, act and what came of it."""

    plan: Sequence[Sequence[Act]] = ()

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.notes: list[tuple[Any, ...]] = []

    def _result(self, row: Finished, now: float) -> None:
        for act in self.plan[row.call.seq % len(self.plan)] if self.plan else ():
            if act.delay:
                self._at(on_grid(now + act.delay), WAKE, partial(self._do, act, row))
            else:
                self._do(act, row, now)
        super()._result(row, now)

    def _do(self, act: Act, row: Finished, now: float) -> None:
        engine: Any = self.engines[row.engine]
        program, thread = row.call.program, row.call.thread
        if act.what == "retain":
            got = engine.retain(program, thread, now + act.seconds, act.priority, now)
        else:
            got = getattr(engine, act.what)(program, now)
        self.notes.append((now, act.what, program, thread, got, engine.waiting_tokens(), engine.view()))


def play_keeping(
    make: EngineMaker,
    case: Scenario,
    schedulers: Callable[[ProcessTable], Scheduler],
    plan: Sequence[Sequence[Act]],
    victims: str = "default",
    *,
    firm: bool = False,
    rule: str = "sum",
    stride: str = "far",
    after: Callable[[Any], None] = lambda engine: None,
) -> tuple[Outcome, list[tuple[Any, ...]], list[dict[str, int]]]:
    """Run ``case``; what happened, what was noted, and every engine's counts of what was kept."""
    table = ProcessTable(rule)
    models = (case.latency,) if case.transfer is None else (case.latency, case.transfer)
    config = replace(case.config, retains=True)
    engines: list[Any] = [make(i, config, schedulers(table), *models) for i in range(case.engines)]
    for engine in engines:
        engine.victims = VICTIMS[victims]
        engine.firm = firm
    host = KeepingHost(engines, None, table, stride, after)
    host.plan = plan
    host.run(case.scripts)
    outcome = Outcome(
        [astuple(row) for row in host.rows],
        [decision for engine in engines for decision in engine.decisions],
        [list(engine.steps) for engine in engines],
        [engine.stats() for engine in engines],
        host.rows,
        host.program_end,
    )
    return outcome, host.notes, [engine.keeping_counts() for engine in engines]


acts = st.builds(
    Act,
    what=st.sampled_from(["retain", "retain", "retain", "release", "drop"]),
    delay=st.sampled_from([0.0, 0.0, 0.0, 0.5, 1.0, 3.25, 9.0]),
    seconds=st.sampled_from([-1.0, 0.0, 0.25, 1.0, 3.0, 7.5, 20.0, 100.0, INF]),
    priority=st.sampled_from([0, 0, 1, 2]),
)
plans = st.lists(st.lists(acts, max_size=3).map(tuple), min_size=1, max_size=5).map(tuple)


def seeded_plan(seed: int) -> list[list[Act]]:
    """Mostly something is kept; now and then dropped or released, at once or later."""
    rng = Random(f"plan {seed}")

    def act() -> Act:
        what = rng.choice(["retain"] * 7 + ["drop", "release"])
        delay = rng.choice([0.0] * 5 + [0.01, 0.2, 1.0])
        return Act(what, delay, rng.choice([0.05, 0.3, 2.0, 30.0, INF]), rng.choice([0, 0, 1]))

    return [[act() for _ in range(rng.choice([0, 1, 1, 2]))] for _ in range(7)]

"""Schedules of two engines compared, step by step, over seeded scenarios."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, replace
from typing import Any

from bench.drivers.virtual import drive
from bench.fidelity.exercise import exercise, lacks
from bench.fidelity.played import Played
from bench.fidelity.scenarios import Scenario
from bench.records import MemorySink
from bench.run import output_tokens
from systems.catalog import (
    DEFAULT_SYSTEM,
    SystemSpec,
    build_router,
    build_scheduler,
    load_system,
)
from systems.engines.reference import ReferenceEngine
from systems.engines.sim import SimEngine
from systems.process_table import ProcessTable
from systems.protocols import Engine
from systems.schedulers.accounts import Accounts
from systems.vllm_host.stock_order import StockOrder, priority_of
from vocabulary import INF, Call, Slot, Snapshot

Maker = Callable[..., Engine]
"""(number, config, scheduler, latency model) -> engine."""
BOUNDS = {"step": (4.0, 16.0, 64.0), "s": (0.05, 0.25, 1.0), "token": (64.0, 200.0, 800.0)}
"""Queues so narrow that these small programs cross them."""
QUANTA = (12.0, 24.0)
BETAS = (1.5, 4.0, INF)
SAMPLE_S = 0.25


class StaticPriority(Accounts):
    """One queue in the order of the programs' given priority: what vLLM's own policy ``priority`` does."""

    name = "static-priority"

    def arrive(self, call: Call, snap: Snapshot, now: float) -> Slot:
        """Its priority; nobody is displaced for a better one."""
        self._admit(call, snap, now)
        return Slot(0, float(priority_of(call.program)), INF)


@dataclass(frozen=True)
class Policy:
    """A scheduler as it is composed for one seed. ``knobs`` differ from the defaults."""

    name: str
    spec: SystemSpec
    knobs: Mapping[str, object]

    def build(self, table: ProcessTable) -> Any:
        """One for an engine, over the deployment's table."""
        return build_scheduler(self.spec, table)


def policy(name: str, seed: int, beta: float | None = None) -> Policy:
    """A scheduler of the catalog with knobs that make it act on small programs; they vary with the seed."""
    has = dict(load_system(DEFAULT_SYSTEM, scheduler=name).scheduler_knobs)
    unit = tuple(BOUNDS)[seed % 3]
    knobs: dict[str, object] = {}
    if "bounds" in has:
        knobs = {"bounds": BOUNDS[unit], "unit": unit, "beta": BETAS[seed // 3 % 3], "max_promotions": 2.0}
    elif "quantum" in has:
        knobs = {"quantum": QUANTA[seed % 2]}
    elif "most_waiting" in has:
        knobs = {"most_waiting": (INF, 4.0)[seed % 2]}
    elif "by" in has:
        knobs = {"by": ("program", "call")[seed % 2]}
    if beta is not None:
        knobs["beta"] = beta
    spec = load_system(
        DEFAULT_SYSTEM, scheduler=name, knobs={f"scheduler.{knob}": value for knob, value in knobs.items()}
    )
    return Policy(name, spec, knobs)


def play(
    scenario: Scenario, make: Maker, schedulers: Callable[[ProcessTable], Any], *,
    rule: str = "sum", clairvoyant: bool = False, engines: int = 1,
) -> Played:  # fmt: skip
    """The scenario's programs on engines made by ``make``, in turn where there are several."""
    table, sink = ProcessTable(rule), MemorySink()
    made = [make(i, scenario.config, schedulers(table), scenario.latency) for i in range(engines)]
    drive(
        scenario.programs,
        times=scenario.times,
        engines=made,
        router=build_router(load_system(DEFAULT_SYSTEM)),
        table=table,
        sink=sink,
        remaining=output_tokens if clairvoyant else None,
        sample_s=SAMPLE_S,
    )
    return Played(
        [list(engine.steps) for engine in made],
        sink.decided,
        [astuple(row) for row in sink.calls],
        [astuple(row) for row in sink.programs],
        [tuple(row) for row in sink.samples],
        [engine.stats() for engine in made],
        sink.calls,
    )


def play_policy(scenario: Scenario, make: Maker, chosen: Policy, engines: int = 1) -> Played:
    """``play`` with a policy of ours."""
    spec = chosen.spec
    return play(scenario, make, chosen.build, rule=spec.rule, clairvoyant=spec.clairvoyant, engines=engines)


def lazily(scenario: Scenario) -> Scenario:
    """The same without a record of steps: ``sim`` then jumps over runs of decode steps."""
    return replace(scenario, config=replace(scenario.config, record_steps=False))


# Differences


def difference(left: Played, right: Played, steps: bool = True) -> str:
    """The first difference in words, empty if there is none: steps first, they explain the rest.

    Totals are compared as far as both sides have them; without ``steps`` (one side jumped) neither steps
    nor what is integrated over a jump.
    """
    if steps:
        for engine, (a, b) in enumerate(zip(left.steps, right.steps, strict=True)):
            if said := _first(f"engine {engine}, step", a, b):
                return said
    parts = ("decisions", "rows", "programs", *(("samples",) if steps else ()))
    for what in parts:
        if said := _first(what, getattr(left, what), getattr(right, what)):
            return said
    return _totals(left.totals, right.totals, () if steps else ("kv_block_seconds",))


def _first(what: str, left: Sequence[Any], right: Sequence[Any]) -> str:
    for at, (a, b) in enumerate(zip(left, right, strict=False)):
        if a != b:
            return f"{what} {at}: {a} against {b}"
    return "" if len(left) == len(right) else f"{what}: {len(left)} against {len(right)}"


def _totals(
    left: Sequence[Mapping[str, float]], right: Sequence[Mapping[str, float]], less: Sequence[str]
) -> str:
    for one, other in zip(left, right, strict=True):
        for name in sorted(set(one) & set(other) - set(less)):
            if one[name] != other[name]:
                return f"total {name}: {one[name]} against {other[name]}"
    return ""


STOCK_FIELDS = ("t_arrive", "t_first_sched", "t_first_token", "t_end", "output_tokens",
                "cached_tokens", "steps", "preemptions", "aborted")  # fmt: skip
"""What vLLM's own outputs say of a call."""


def stock_difference(stock: Played, ours: Played) -> str:
    """As ``difference``, with what vLLM says without our books: a set of preempted calls, some fields."""
    left, right = (
        replace(
            played,
            steps=[
                [step._replace(preempted=tuple(sorted(set(step.preempted)))) for step in e]
                for e in played.steps
            ],
            decisions=[],
            rows=[(row.call.seq, *(getattr(row, f) for f in STOCK_FIELDS)) for row in played.calls],
            programs=[row[:6] for row in played.programs],
        )
        for played in (stock, ours)
    )
    return difference(left, right)


# One scenario


@dataclass(frozen=True)
class Result:
    """One scenario under one scheduler. ``differs``: where, by the engine compared with; empty if nowhere."""

    scheduler: str
    family: str
    seed: int
    large: bool
    knobs: Mapping[str, object]
    exercise: Mapping[str, int]
    differs: Mapping[str, str]
    lacks: str

    def plain(self) -> dict[str, Any]:
        """As JSON data."""
        return asdict(self)


def against_ours(scenario: Scenario, chosen: Policy, vllm: Maker) -> Result:
    """vLLM's scheduler with the policy inside, against ``sim``, ``sim`` as it jumps, and ``reference``."""
    theirs = play_policy(scenario, vllm, chosen)
    found = {
        "sim": difference(theirs, play_policy(scenario, SimEngine, chosen)),
        "sim, jumping": difference(theirs, play_policy(lazily(scenario), SimEngine, chosen), steps=False),
        "reference": difference(theirs, play_policy(scenario, ReferenceEngine, chosen)),
    }
    return _result(chosen.name, scenario, chosen.knobs, theirs, found)


def against_stock(scenario: Scenario, order: str, vllm: Maker) -> Result:
    """vLLM's scheduler without our class, against ``sim`` and ``reference`` under the same order."""
    theirs = play(scenario, vllm, lambda _: StockOrder(order))
    ours = (
        StaticPriority
        if order == "priority"
        else lambda table: build_scheduler(load_system(DEFAULT_SYSTEM), table)
    )
    found = {
        "sim": stock_difference(theirs, play(scenario, SimEngine, ours)),
        "reference": stock_difference(theirs, play(scenario, ReferenceEngine, ours)),
    }
    return _result(f"vLLM's {order}", scenario, {}, theirs, found)


def _result(
    name: str, scenario: Scenario, knobs: Mapping[str, object], theirs: Played, found: dict[str, str]
) -> Result:
    counts = exercise(theirs)
    differs = {engine: said for engine, said in found.items() if said}
    return Result(
        name,
        scenario.family,
        scenario.seed,
        scenario.large,
        knobs,
        counts,
        differs,
        lacks(scenario.family, counts),
    )

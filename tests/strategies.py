"""Hypothesis strategies for small, nasty workloads, and a scheduler that does everything at once.

Tight KV, tiny batches, ties in time, zero gaps, forks, shared and truncated
contexts, prompts of whole blocks, clients that leave.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from random import Random

from hypothesis import strategies as st

from systems.process_table import ProcessTable
from systems.protocols import CacheView
from systems.schedulers.accounts import Accounts
from tests.latency_models import BlockTransfer, ConstantLatency, LinearLatency
from tests.live.seeded import scenario
from tests.scenarios import Ask, Chain, Fork, Scenario, Script
from vocabulary import INF, Call, EngineConfig, Slot, Snapshot, Usage, blocks_for, on_grid


@dataclass(frozen=True)
class LadderKnobs:
    """``first``: levels of arriving calls, by program and call number; ``quanta`` per level, in ``unit``.

    A waiting call of a level below the top moves to the top after ``patience`` s, ``promotions`` times.
    """

    first: tuple[int, ...] = (0,)
    quanta: tuple[float, ...] = (INF,)
    unit: str = "step"
    patience: float = INF
    promotions: int = 2


class Ladder(Accounts):
    """Levels by script, demotion by quantum, promotion by waiting; keys are times, so they tie."""

    name = "ladder"

    def __init__(self, knobs: LadderKnobs, table: ProcessTable | None = None) -> None:
        super().__init__(table)
        self.knobs = knobs
        self.unit = knobs.unit
        self.tracks_wait = knobs.patience < INF
        self._level: dict[int, int] = {}
        self._left: dict[int, int] = {}
        self._since: dict[int, tuple[float, Call]] = {}

    def arrive(self, call: Call, snap: Snapshot, now: float) -> Slot:
        self._admit(call, snap, now)
        first = self.knobs.first[(call.program + call.index) % len(self.knobs.first)]
        self._left[call.seq] = self.knobs.promotions
        self._since[call.seq] = (now, call)
        return self._slot(call, first, now)

    def _slot(self, call: Call, level: int, now: float) -> Slot:
        level = min(level, len(self.knobs.quanta) - 1)
        self._level[call.seq] = level
        return Slot(level, now, self.knobs.quanta[level])

    def start(self, call: Call, now: float) -> None:
        del self._since[call.seq]

    def stop(self, call: Call, usage: Usage, now: float) -> None:
        self._since[call.seq] = (now, call)

    def expire(self, call: Call, served: float, now: float) -> Slot:
        return self._slot(call, self._level[call.seq] + 1, now)

    def next_due(self) -> float:
        return min((since for since, _ in self._movable()), default=INF) + self.knobs.patience

    def _movable(self) -> list[tuple[float, Call]]:
        waiting = self._since.values()
        return [(at, call) for at, call in waiting if self._left[call.seq] and self._level[call.seq]]

    def due(self, now: float) -> list[tuple[Call, Slot]]:
        late = [call for since, call in self._movable() if since + self.knobs.patience <= now]
        for call in late:
            self._left[call.seq] -= 1
            self._since[call.seq] = (now, call)
        return [(call, self._slot(call, 0, now)) for call in late]

    def finish(self, call: Call, usage: Usage, now: float) -> None:
        super().finish(call, usage, now)
        self._since.pop(call.seq, None)


class Peek(Ladder):
    """A ladder whose keys are minus the tokens of the prefix cache that a call finds when it is asked."""

    name = "peek"
    reads_cache = True

    def attach(self, cache: CacheView) -> None:
        self.cache = cache

    def arrive(self, call: Call, snap: Snapshot, now: float) -> Slot:
        return self._by_prefix(call, super().arrive(call, snap, now))

    def due(self, now: float) -> list[tuple[Call, Slot]]:
        return [(call, self._by_prefix(call, slot)) for call, slot in super().due(now)]

    def _by_prefix(self, call: Call, slot: Slot) -> Slot:
        return slot._replace(key=-float(sum(length for _, length in self.cache.prefix(call))))


def peek(knobs: LadderKnobs) -> partial[Peek]:
    """Like ``ladder``."""
    return partial(Peek, knobs)


def ladder(knobs: LadderKnobs) -> partial[Ladder]:
    """What ``play`` wants: a scheduler for each engine over the deployment's table."""
    return partial(Ladder, knobs)


def largest_call(chain: Chain, context: int = 0) -> int:
    """Tokens of the largest call, prompt and reply."""
    largest = 0
    for item in chain:
        if isinstance(item, Fork):
            largest = max([largest, *(largest_call(branch, context) for branch in item.chains)])
            continue
        context = min(context, context if item.keep is None else item.keep) + item.new + item.output
        largest = max(largest, context)
    return largest


_SIZES = st.sampled_from([1, 2, 15, 16, 17, 31, 32, 33, 48, 70])
_OUTPUTS = st.sampled_from([1, 1, 2, 3, 14, 15, 16, 17, 33, 50])
_GAPS = st.sampled_from([0.0, 0.0, 0.0, 0.5, 1.0, 2.25, 9.0])

asks = st.builds(
    Ask,
    new=_SIZES,
    output=_OUTPUTS,
    gap=_GAPS,
    text=st.sampled_from([None, None, None, "system", "question"]),
    keep=st.sampled_from([None, None, None, None, 0, 16, 20, 48]),
)
_chains = st.lists(asks, min_size=1, max_size=3).map(tuple)
_forks = st.builds(Fork, st.lists(_chains, min_size=2, max_size=5).map(tuple))
_heads = st.builds(
    Ask, new=st.sampled_from([16, 32, 40, 64]), output=_OUTPUTS, text=st.sampled_from(["system", None])
)
scripts = st.builds(
    lambda head, rest, arrival, leaves: Script((head, *rest), arrival, leaves),
    _heads,
    st.lists(st.one_of(asks, asks, _forks), max_size=3),
    st.sampled_from([0.0, 0.0, 0.0, 1.0, 2.5, 7.0, 30.0]),
    st.sampled_from([None, None, None, None, None, 0.0, 3.0, 11.5]),
)
latencies = st.sampled_from([ConstantLatency(1.0), ConstantLatency(0.25), LinearLatency()])


@st.composite
def scenarios(
    draw: st.DrawFn, max_programs: int = 5, max_engines: int = 2, min_programs: int = 1
) -> Scenario:
    """``min_programs`` to ``max_programs`` programs; KV from what the largest call needs to twice that."""
    programs = tuple(draw(st.lists(scripts, min_size=min_programs, max_size=max_programs)))
    need = max(blocks_for(largest_call(script.chain)) for script in programs)
    seqs = draw(st.sampled_from([1, 2, 3, 4, 8]))
    config = EngineConfig(
        kv_blocks=need + draw(st.sampled_from([0, 1, 2, 3, need])),
        max_num_seqs=seqs,
        max_num_batched_tokens=max(seqs, draw(st.sampled_from([1, 7, 16, 20, 64, 2048]))),
        prefix_cache=draw(st.sampled_from([True, True, True, False])),
        record_steps=True,
    )
    return Scenario(programs, config, draw(latencies), draw(st.integers(1, max_engines)))


@st.composite
def ladders(draw: st.DrawFn, min_levels: int = 1) -> LadderKnobs:
    """Up to four levels; short quanta above an endless last one."""
    levels = draw(st.integers(min_levels, 4))
    unit = draw(st.sampled_from(["step", "s", "token"]))
    quantum = st.sampled_from([0.5, 1.0, 2.0, 5.0, 16.0, INF])
    return LadderKnobs(
        first=tuple(draw(st.lists(st.integers(0, levels - 1), min_size=1, max_size=4))),
        quanta=(*(draw(quantum) for _ in range(levels - 1)), INF),
        unit=unit,
        patience=draw(st.sampled_from([INF, INF, 0.5, 4.0, 20.0])),
    )


_TRANSFERS = st.sampled_from([None, BlockTransfer(0.25), BlockTransfer(0.125, 0.5)])
_HOST_BLOCKS = st.sampled_from([0, 1, 2, 4, 7, 100])
_EVERY = st.sampled_from([2, 3, 5, 16])
OPTIONS = {
    "whole prompts": {"chunked_prefill": st.just(False)},
    "every N": {"schedule_every": _EVERY},
    "swap": {"preemption": st.just("swap"), "host_blocks": _HOST_BLOCKS},
    "hold": {"preemption": st.just("hold")},
    "tier": {"prefix_cache": st.just(True), "host_tier": st.just(True), "host_blocks": _HOST_BLOCKS},
}
OPTIONS |= {
    f"{one}, {other}": OPTIONS[one] | OPTIONS[other]
    for one, other in (
        ("whole prompts", "swap"),
        ("whole prompts", "hold"),
        ("every N", "hold"),
        ("swap", "tier"),
    )
}
"""What sets each option of docs/engine-options.md, and the pairs that have rules of their own."""
_MIXTURE = {
    "prefix_cache": st.just(True),
    "chunked_prefill": st.booleans(),
    "schedule_every": st.one_of(st.just(1), _EVERY),
    "preemption": st.sampled_from(["swap", "hold", "swap", "recompute"]),
    "host_tier": st.booleans(),
    "host_blocks": _HOST_BLOCKS,
}


@st.composite
def optional_scenarios(draw: st.DrawFn, option: str | None = None) -> Scenario:
    """A scenario under one of OPTIONS, or under a mixture of them; three programs at least."""
    case = draw(scenarios(min_programs=3))
    values = _MIXTURE if option is None else OPTIONS[option]
    changes = {field: draw(value) for field, value in values.items()}
    return replace(case, config=replace(case.config, **changes), transfer=draw(_TRANSFERS))


def seeded_options(seed: int) -> Scenario:
    """The seeded scenario, larger than the generated ones, under seeded options."""
    rng, case = Random(f"options {seed}"), scenario(seed, engines=1 + seed % 3)
    config = replace(
        case.config,
        chunked_prefill=rng.random() < 0.5,
        schedule_every=rng.choice([1, 1, 2, 4, 9]),
        preemption=rng.choice(["recompute", "swap", "swap", "hold"]),
        host_tier=case.config.prefix_cache and rng.random() < 0.5,
        host_blocks=rng.choice([0, 4, 16, 60, 1000]),
        record_steps=rng.random() < 0.3,
    )
    transfer = BlockTransfer(on_grid(0.4e-3), on_grid(rng.choice([0.0, 0.01])))
    return replace(case, config=config, transfer=transfer)

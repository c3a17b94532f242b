"""Hypothesis strategies for small, nasty workloads, and a scheduler that does everything at once.

Tight KV, tiny batches, ties in time, zero gaps, forks, shared and truncated
contexts, prompts of whole blocks, clients that leave.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from hypothesis import strategies as st

from systems.process_table import ProcessTable
from systems.schedulers.accounts import Accounts
from tests.latency_models import ConstantLatency, LinearLatency
from tests.scenarios import Ask, Chain, Fork, Scenario, Script
from vocabulary import INF, Call, EngineConfig, Slot, Snapshot, Usage, blocks_for


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
def scenarios(draw: st.DrawFn, max_programs: int = 5, max_engines: int = 2) -> Scenario:
    """Up to ``max_programs`` programs; KV between what the largest call needs and twice that."""
    programs = tuple(draw(st.lists(scripts, min_size=1, max_size=max_programs)))
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
def ladders(draw: st.DrawFn) -> LadderKnobs:
    """Up to four levels; short quanta above an endless last one."""
    levels = draw(st.integers(1, 4))
    unit = draw(st.sampled_from(["step", "s", "token"]))
    quantum = st.sampled_from([0.5, 1.0, 2.0, 5.0, 16.0, INF])
    return LadderKnobs(
        first=tuple(draw(st.lists(st.integers(0, levels - 1), min_size=1, max_size=4))),
        quanta=(*(draw(quantum) for _ in range(levels - 1)), INF),
        unit=unit,
        patience=draw(st.sampled_from([INF, INF, 0.5, 4.0, 20.0])),
    )

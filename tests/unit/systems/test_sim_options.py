"""What only the lazy engine can get wrong under options: its class, its laziness, its host memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from systems.engines.holding import HoldEngine
from systems.engines.host_memory import HostMemory
from systems.engines.options import OptionEngine
from systems.engines.paced import PacedEngine
from systems.engines.radix import Run
from systems.engines.request import Request
from systems.engines.sim import SimEngine
from tests.latency_models import BlockTransfer, ConstantLatency
from tests.scenarios import Ask, Outcome, Scenario, Script, play
from tests.strategies import Ladder, LadderKnobs, ladder
from vocabulary import INF, Body, Call, EngineConfig, Finished, Segment, Slot, Snapshot

NO_LADDER = LadderKnobs()


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        ({}, SimEngine),
        ({"host_blocks": 9}, SimEngine),
        ({"prefix_cache": False}, SimEngine),
        ({"chunked_prefill": False}, PacedEngine),
        ({"schedule_every": 2}, PacedEngine),
        ({"preemption": "swap"}, OptionEngine),
        ({"host_tier": True}, OptionEngine),
        ({"preemption": "hold"}, HoldEngine),
    ],
)
def test_who_needs_no_option_pays_for_none(options: dict[str, Any], kind: type) -> None:
    engine = SimEngine(0, EngineConfig(10, 4, **options), Ladder(NO_LADDER), ConstantLatency())
    assert type(engine) is kind


# As lazy as without options


class Counted:
    """A second a step; counts how often the engine asks."""

    name = "counted"

    def __init__(self) -> None:
        self.inner = ConstantLatency(1.0)
        self.asked = 0

    def step(self, prefills: Sequence[tuple[int, int]], n_decode: int, sum_ctx: int) -> float:
        self.asked += 1
        return self.inner.step(prefills, n_decode, sum_ctx)

    def decode_line(self, n_decode: int, sum_ctx: int) -> tuple[float, float, float]:
        self.asked += 1
        return self.inner.decode_line(n_decode, sum_ctx)


OPTIONS: dict[str, dict[str, Any]] = {
    "none": {},
    "whole prompts": {"chunked_prefill": False},
    "every 8": {"schedule_every": 8},
    "swap": {"preemption": "swap", "host_blocks": 10_000},
    "hold": {"preemption": "hold"},
    "tier": {"host_tier": True, "host_blocks": 10_000},
    "whole prompts every 8, swapped": {
        "chunked_prefill": False, "schedule_every": 8, "preemption": "swap", "host_blocks": 10_000,
    },
}  # fmt: skip


@pytest.mark.parametrize("option", OPTIONS)
def test_thousands_of_steps_cost_a_few_looks(option: str) -> None:
    """Nine calls of 4 000 tokens, three at a time, demoted twice, the rest waiting: 12 000 steps and more."""
    scripts = tuple(Script((Ask(40, 4000),), arrival=100.0 * i) for i in range(9))
    config = EngineConfig(kv_blocks=2000, max_num_seqs=3, record_decisions=True, **OPTIONS[option])
    latency = Counted()
    knobs = LadderKnobs(quanta=(500.0, 1000.0, INF))
    outcome = play(SimEngine, Scenario(scripts, config, latency, transfer=BlockTransfer(0.25)), ladder(knobs))
    assert outcome.stats[0]["steps"] >= 12_000
    assert outcome.stats[0]["preemptions"] >= 9
    events = len(outcome.decisions)
    assert latency.asked < 3 * events < 400


# Books of host memory


def request(body: Body) -> Request:
    call = Call(0, 0, "", 0, body.ends[body.segments - 1])
    return Request(call, body, Finished(call, 0, 0.0), Slot(0, 0.0))


def run_of(start: int, blocks: int, *segments: Segment) -> Run:
    body = Body(segments, 99, 1)
    return Run(body.ids, body.ends, start, blocks)


def test_the_tier_knows_content_by_its_whole_history() -> None:
    host = HostMemory(10)
    host.enter(run_of(0, 3, (1, 20), (2, 28)), 3)
    same, longer_first, other_second = (
        request(Body(segments, 99, 1)) for segments in (
            ((1, 20), (2, 40)), ((1, 21), (2, 40)), ((1, 20), (3, 40)),
        )
    )  # fmt: skip
    assert host.start(same, 0) == 48
    assert host.start(same, 2) == 48
    assert host.start(longer_first, 0) == 16
    assert host.start(other_second, 0) == 16


def test_the_last_token_is_computed_whatever_the_tier_holds() -> None:
    host = HostMemory(10)
    host.enter(run_of(0, 3, (1, 48)), 3)
    assert host.start(request(Body([(1, 48)], 99, 1)), 0) == 32
    assert host.start(request(Body([(1, 49)], 99, 1)), 0) == 48


def test_the_oldest_goes_first_and_blocks_enter_tail_first() -> None:
    host = HostMemory(3)
    host.enter(run_of(0, 2, (1, 32)), 2)
    host.enter(run_of(0, 1, (2, 16)), 1)
    host.enter(run_of(0, 1, (3, 16)), 1)  # block 1 of segment 1 was the first to come
    assert [tokens for _, tokens in host.tier] == [16, 16, 16]
    assert (host.entered, host.dropped) == (4, 1)
    host.enter(run_of(0, 1, (1, 16)), 1)  # again: counts as nothing, but is the newest
    host.enter(run_of(0, 1, (4, 16)), 1)
    assert host.start(request(Body([(1, 30)], 99, 1)), 0) == 16
    assert host.start(request(Body([(2, 30)], 99, 1)), 0) == 0


def test_a_copy_takes_the_room_of_the_tier_and_what_is_empty_is_forgotten() -> None:
    host, swapped = HostMemory(4), request(Body([(7, 60)], 99, 9))
    host.enter(run_of(0, 4, (1, 20), (2, 20), (3, 24)), 4)
    host.keep(swapped, 60, decodes=False)
    assert (host.used, len(host.tier), host.dropped, host.out) == (4, 0, 4, 4)
    assert not host.root.behind
    host.enter(run_of(0, 1, (1, 16)), 1)  # no room at all: lost, and not counted
    assert (host.entered, host.dropped) == (4, 4)
    host.bring_back(swapped, 1, host.start(swapped, 1))
    assert (host.used, host.into, host.swap_in, swapped.copy) == (0, 3, 3, 0)


def test_fetched_blocks_leave_the_tier() -> None:
    host, call = HostMemory(8), request(Body([(1, 20), (2, 60)], 99, 1))
    host.enter(run_of(0, 4, (1, 20), (2, 44)), 4)
    host.bring_back(call, 1, host.start(call, 1))
    assert (host.into, host.fetched, host.swap_in) == (3, 3, 0)
    assert [tokens for _, tokens in host.tier] == [16]


# Swap and what a scheduler reads


def swapping(**options: Any) -> Outcome:
    """Call 0 has computed 17 tokens, two blocks, when call 1 takes its place for two steps; 1/4 s a block."""
    scripts = Script((Ask(16, 5),)), Script((Ask(16, 2),), 1.5)
    config = EngineConfig(
        kv_blocks=100, max_num_seqs=1, preemption="swap", host_blocks=8, prefix_cache=False, **options
    )
    scenario = Scenario(scripts, config, ConstantLatency(1.0), transfer=BlockTransfer(0.25))
    return play(SimEngine, scenario, ladder(LadderKnobs((1, 0), (INF, INF))))


def test_a_swapped_call_goes_on_decoding_and_steps_take_longer_by_the_transfers() -> None:
    outcome = swapping()
    first, second = sorted(outcome.finished, key=lambda row: row.call.seq)
    assert (second.prefill_s, second.swap_s, second.decode_s, second.wait_s) == (1.0, 0.5, 1.0, 0.5)
    assert (first.prefill_s, first.swap_s, first.decode_s, first.wait_s) == (1.0, 0.5, 4.0, 2.5)
    assert (first.reprefill_s, first.steps, first.t_end) == (0.0, 5, 8.0)
    stats = outcome.stats[0]
    assert (stats["swap_s"], stats["swap_out_blocks"], stats["swap_in_blocks"]) == (1.0, 2, 2)
    assert (stats["decode_tokens"], stats["computed_prefill_tokens"], stats["busy_s"]) == (5, 32, 8.0)


class Reader(Ladder):
    """Notes what the cache holds of each call when it arrives."""

    reads_cache = True

    def __init__(self) -> None:
        super().__init__(NO_LADDER)
        self.seen: list[list[Segment]] = []

    def attach(self, cache: Any) -> None:
        self.cache = cache

    def arrive(self, call: Call, snap: Snapshot, now: float) -> Slot:
        self.seen.append(list(self.cache.prefix(call)))
        return super().arrive(call, snap, now)


def test_an_arriving_call_can_be_looked_up() -> None:
    reader = Reader()
    scripts = Script((Ask(20, 13), Ask(5, 1))), Script((Ask(20, 1),), 20.0)
    play(SimEngine, Scenario(scripts, EngineConfig(20, 4), ConstantLatency(1.0)), lambda _: reader)
    first, second, stranger = reader.seen
    assert (first, stranger) == ([], [])
    (_, prompt), (_, reply) = second
    assert (prompt, reply) == (20, 12)  # two blocks: the reply's last token was never computed

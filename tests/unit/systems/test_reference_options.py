"""The options of the reference engine against examples computed by hand: a second a step, 1/4 s a block."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from systems.engines.reference import ReferenceEngine
from systems.engines.reference_host import HostMemory
from systems.engines.reference_job import Job
from systems.engines.reference_kv import content_of
from systems.engines.reference_state import EngineState, Prefix
from tests.latency_models import BlockTransfer, ConstantLatency
from tests.scenarios import Ask, Outcome, Scenario, Script, play
from tests.strategies import Ladder, LadderKnobs, ladder, peek
from tests.unit.systems.test_reference import batches, one, rows, told
from vocabulary import INF, Body, Call, EngineConfig, Finished, Slot

TWO = LadderKnobs(first=(1, 0), quanta=(INF, INF))
ONE_LEVEL = LadderKnobs()
QUARTER = BlockTransfer(0.25)


def run(
    *scripts: Script,
    kv_blocks: int = 100,
    max_num_seqs: int = 8,
    knobs: LadderKnobs = ONE_LEVEL,
    policy: Callable = ladder,
    **options: object,
) -> Outcome:
    config = EngineConfig(kv_blocks, max_num_seqs, record_steps=True, **options)  # type: ignore[arg-type]
    scenario = Scenario(scripts, config, ConstantLatency(1.0), transfer=QUARTER)
    return play(ReferenceEngine, scenario, policy(knobs), stride="single", after=lambda e: e.check())


def admits(outcome: Outcome) -> list[tuple[float, int, float]]:
    return [(d.time, d.call, d.value) for d in outcome.decisions if d.rule == "admit"]


def split(row: Finished) -> tuple[float, ...]:
    """Seconds of prefill, re-prefill, decode, swap, wait."""
    return row.prefill_s, row.reprefill_s, row.decode_s, row.swap_s, row.wait_s


# Chunked prefill off


def test_a_step_prefills_or_decodes_and_a_long_prompt_goes_alone() -> None:
    scripts = one(16, 3), one(50, 2, arrival=1.0), one(5, 1, arrival=1.0)
    outcome = run(*scripts, chunked_prefill=False, max_num_batched_tokens=20)
    assert list(batches(outcome).values()) == [{0: 16}, {1: 50}, {2: 5}, {0: 1, 1: 1}, {0: 1}]
    assert split(rows(outcome)[0]) == (1.0, 0.0, 2.0, 0.0, 2.0)  # it waits while others prefill
    assert rows(outcome)[0].steps == 3


@pytest.mark.parametrize(
    ("second", "steps"), [(8, [{0: 12, 1: 8}, {2: 5}]), (9, [{0: 12}, {1: 9, 2: 5}])], ids=["fits", "stops"]
)
def test_whole_prompts_share_a_step_as_far_as_the_budget_goes(second: int, steps: list) -> None:
    outcome = run(one(12, 1), one(second, 1), one(5, 1), chunked_prefill=False, max_num_batched_tokens=20)
    assert list(batches(outcome).values()) == steps


@pytest.mark.parametrize(
    ("prompt", "whole", "displaced"),
    [(5, True, [1.0, 1.0]), (10, True, [1.0, 2.0]), (10, False, [1.0, 1.0])],
    ids=["fits", "too long", "in chunks"],
)
def test_displacement_stops_at_a_prompt_that_is_too_long_for_the_step(
    prompt: int, whole: bool, displaced: list[float]
) -> None:
    scripts = one(4, 9), one(4, 9), one(15, 9, arrival=1.0), one(prompt, 9, arrival=1.0)
    knobs = LadderKnobs(first=(1, 1, 0, 0), quanta=(INF, INF))
    limits = {"max_num_seqs": 2, "max_num_batched_tokens": 20}
    outcome = run(*scripts, knobs=knobs, chunked_prefill=not whole, **limits)
    assert [d.time for d in outcome.decisions if d.rule == "displace"] == displaced


# Scheduling every N steps


@pytest.mark.parametrize(("arrival", "first"), [(0.0, 0.0), (0.5, 4.0), (3.5, 4.0), (4.0, 4.0), (4.5, 8.0)])
def test_an_arrival_waits_for_the_next_pass(arrival: float, first: float) -> None:
    outcome = run(one(16, 20), one(4, 1, arrival=arrival), schedule_every=4)
    assert rows(outcome)[1].t_first_sched == first


def test_where_nobody_runs_any_more_is_a_pass() -> None:
    outcome = run(one(16, 2), one(4, 6, arrival=0.5), one(4, 1, arrival=5.5), schedule_every=4)
    assert admits(outcome) == [(0.0, 0, 0), (2.0, 1, 0), (6.0, 2, 0)]  # counted from the pass at 2 s


def test_quanta_and_promotions_wait_for_a_pass() -> None:
    knobs = LadderKnobs(first=(0, 2), quanta=(2.0, INF, INF), patience=1.5)
    outcome = run(one(16, 9), one(4, 1), knobs=knobs, max_num_seqs=1, schedule_every=4)
    assert told(outcome, "expire", "promote", "displace") == [
        (4.0, 0, "expire"), (4.0, 1, "promote"), (4.0, 0, "displace"),
    ]  # fmt: skip


@pytest.mark.parametrize(("every", "again"), [(1, 3.0), (8, 8.0)])
def test_a_call_evicted_between_passes_comes_back_at_one(every: int, again: float) -> None:
    outcome = run(one(16, 3), one(16, 14), one(16, 9), kv_blocks=4, schedule_every=every)
    assert told(outcome, "evict") == [(1.0, 2, "evict")]  # one block is free, three calls need one each
    assert admits(outcome)[3][:2] == (again, 2)  # call 0 leaves two blocks at 3 s


# Swap


def test_a_swapped_call_goes_on_decoding_and_everybody_pays_the_transfer() -> None:
    knobs = replace(TWO, unit="s")
    outcome = run(
        one(16, 6), one(4, 3, arrival=2.0), max_num_seqs=1, knobs=knobs, preemption="swap", host_blocks=2
    )
    assert list(batches(outcome).items()) == [
        (0.0, {0: 16}), (1.0, {0: 1}),
        (2.0, {1: 4}), (3.5, {1: 1}), (4.5, {1: 1}),  # two blocks out
        (5.5, {0: 1}), (6.75, {0: 1}), (7.75, {0: 1}), (8.75, {0: 1}),  # one in, the other is a hit
    ]  # fmt: skip
    first, second = rows(outcome)[0], rows(outcome)[1]
    assert split(first) == (1.0, 0.0, 5.0, 0.25, 3.5)
    assert split(second) == (1.0, 0.0, 2.0, 0.5, 0.0)
    assert (first.served, second.served, first.reprefill_tokens, first.cached_tokens) == (6.25, 3.5, 0, 0)
    assert admits(outcome)[-1] == (5.5, 0, 17)
    stats = outcome.stats[0]
    assert (stats["swap_outs"], stats["swap_out_blocks"], stats["swap_in_blocks"]) == (1, 2, 1)
    assert (stats["swap_s"], stats["busy_s"], stats["swap_full"]) == (0.75, 9.75, 0)


def test_without_prefix_cache_the_whole_copy_comes_back() -> None:
    outcome = run(
        one(16, 6), one(4, 3, arrival=2.0), max_num_seqs=1, knobs=TWO, preemption="swap", host_blocks=2,
        prefix_cache=False,
    )  # fmt: skip
    assert outcome.stats[0]["swap_in_blocks"] == 2
    assert rows(outcome)[0].swap_s == 0.5


def test_a_full_host_means_recompute() -> None:
    outcome = run(
        one(16, 6), one(4, 3, arrival=2.0), max_num_seqs=1, knobs=TWO, preemption="swap", host_blocks=1
    )
    assert split(rows(outcome)[0]) == (1.0, 1.0, 4.0, 0.0, 3.0)
    stats = outcome.stats[0]
    assert (stats["swap_full"], stats["swap_outs"], stats["swap_out_blocks"]) == (1, 0, 0)


@pytest.mark.parametrize(("prefix_cache", "seconds"), [(True, 0.25), (False, 0.5)])
def test_a_prefill_that_is_swapped_goes_on_where_it_was(prefix_cache: bool, seconds: float) -> None:
    outcome = run(
        one(48, 1), one(8, 2, arrival=1.0), knobs=TWO, max_num_batched_tokens=16, preemption="swap",
        host_blocks=9, prefix_cache=prefix_cache,
    )  # fmt: skip
    assert list(batches(outcome).values()) == [{0: 16}, {1: 8, 0: 8}, {1: 1, 0: 15}, {0: 9}]
    first = rows(outcome)[0]
    assert (first.prefill_tokens, first.reprefill_tokens) == (16, 32)
    assert first.swap_s == rows(outcome)[1].swap_s == seconds  # out and in again in the same step


def test_a_swapped_decode_shares_the_step_of_the_prefills_that_come_with_it() -> None:
    scripts = one(16, 6), one(4, 1, arrival=2.0), one(4, 1, arrival=2.0), one(5, 1, arrival=2.0)
    knobs = LadderKnobs(first=(1, 0, 0, 1), quanta=(INF, INF))
    outcome = run(
        *scripts, max_num_seqs=2, knobs=knobs, chunked_prefill=False, preemption="swap", host_blocks=9
    )
    assert list(batches(outcome).items())[2:5] == [(2.0, {1: 4, 2: 4}), (3.5, {0: 1, 3: 5}), (4.75, {0: 1})]
    assert split(rows(outcome)[0]) == (1.0, 0.0, 5.0, 0.25, 1.5)


def test_an_aborted_call_gives_up_its_copy() -> None:
    leaver = Script((Ask(16, 30),), leaves=4.0)
    outcome = run(leaver, one(4, 9, arrival=2.0), max_num_seqs=1, knobs=TWO, preemption="swap", host_blocks=2)
    gone = outcome.finished[0]
    assert (gone.aborted, gone.t_end) == (True, 4.5)
    assert split(gone) == (1.0, 0.0, 1.0, 0.0, 2.5)
    assert outcome.stats[0]["swap_in_blocks"] == 0  # and ``check`` counts no copy after it


# Hold


def test_a_held_call_resumes_and_computes_nothing_again() -> None:
    outcome = run(one(16, 6), one(4, 3, arrival=2.0), max_num_seqs=1, knobs=TWO, preemption="hold")
    assert told(outcome, "hold", "displace", "evict") == [(2.0, 0, "hold")]
    assert list(batches(outcome)) == [float(t) for t in range(9)]
    first = rows(outcome)[0]
    assert split(first) == (1.0, 0.0, 5.0, 0.0, 3.0)
    assert (first.preemptions, first.reprefill_tokens) == (1, 0)
    assert admits(outcome)[-1] == (5.0, 0, 17)
    assert (outcome.stats[0]["displaced"], outcome.stats[0]["evicted"]) == (1, 0)


@pytest.mark.parametrize("every", [1, 2])
def test_held_blocks_go_to_the_running_before_anybody_is_evicted(every: int) -> None:
    """Call 1 needs its third block at 31 s, which is no pass where those are every 2 s."""
    outcome = run(
        one(16, 30), one(4, 40, arrival=2.0), kv_blocks=4, max_num_seqs=1, knobs=TWO, preemption="hold",
        schedule_every=every,
    )  # fmt: skip
    assert told(outcome, "hold", "evict") == [(2.0, 0, "hold"), (31.0, 0, "evict")]
    first = rows(outcome)[0]
    assert (first.preemptions, first.reprefill_tokens) == (2, 2)  # one block was still cached
    stats = outcome.stats[0]
    assert (stats["displaced"], stats["evicted"], stats["preemptions"]) == (1, 1, 2)
    assert [step.preempted for step in outcome.steps[0] if step.preempted] == [(0,), (0,)]


def test_held_blocks_go_to_a_better_call_worst_first() -> None:
    scripts = one(32, 20), one(16, 20, arrival=2.0), one(16, 1, arrival=4.0)
    knobs = LadderKnobs(first=(2, 1, 0), quanta=(INF, INF, INF))
    outcome = run(*scripts, kv_blocks=5, max_num_seqs=1, knobs=knobs, preemption="hold")
    assert told(outcome, "hold", "evict")[:3] == [(2.0, 0, "hold"), (4.0, 1, "hold"), (4.0, 0, "evict")]
    assert batches(outcome)[5.0] == {1: 1}


def test_a_call_held_for_its_tokens_and_resumed_takes_them_again() -> None:
    """Room for both: the running are scheduled first, so holding the prefill gains call 1 nothing."""
    outcome = run(one(48, 1), one(8, 2, arrival=1.0), knobs=TWO, max_num_batched_tokens=16, preemption="hold")
    assert list(batches(outcome).values()) == [{0: 16}, {0: 16}, {0: 16}, {1: 8}, {1: 1}]
    first = rows(outcome)[0]
    assert split(first) == (3.0, 0.0, 0.0, 0.0, 0.0)  # its prefill went on, no re-prefill
    assert told(outcome, "hold") == [(1.0, 0, "hold"), (2.0, 0, "hold")]


def test_a_held_decode_resumes_beside_a_prompt_that_takes_all_tokens() -> None:
    """With chunked prefill off it wants none of them; it takes part from the next step on."""
    scripts = one(16, 3), one(16, 9), one(4, 2, arrival=2.0), one(32, 2, arrival=3.5)
    knobs = LadderKnobs(first=(1, 1, 0, 0), quanta=(INF, INF))
    limits = {"max_num_seqs": 2, "max_num_batched_tokens": 32}
    outcome = run(*scripts, knobs=knobs, chunked_prefill=False, preemption="hold", **limits)
    assert told(outcome, "hold") == [(2.0, 1, "hold")]
    assert admits(outcome)[2:] == [(2.0, 2, 0), (4.0, 1, 17), (4.0, 3, 0)]
    assert list(batches(outcome).values())[2:6] == [{2: 4}, {0: 1, 2: 1}, {3: 32}, {1: 1, 3: 1}]


# Host tier


def test_evicted_content_comes_back_from_the_host_and_blocks_the_step() -> None:
    scripts = one(48, 1, text="a"), one(64, 1, arrival=1.0), one(48, 1, arrival=2.0, text="a")
    outcome = run(*scripts, kv_blocks=4, host_tier=True, host_blocks=3)
    third = rows(outcome)[2]
    assert (third.cached_tokens, third.prefill_tokens) == (
        32,
        16,
    )  # the last token is computed: no third block
    assert split(third) == (1.0, 0.0, 0.0, 0.5, 0.0)
    stats = outcome.stats[0]
    assert (stats["host_hit_tokens"], stats["hit_tokens"], stats["swap_s"]) == (32, 32, 0.5)
    # In: three of the first, three of the second; the first's last block made room for them.
    assert (stats["host_in_blocks"], stats["host_dropped_blocks"]) == (6, 1)


def test_without_a_tier_evicted_content_is_lost() -> None:
    scripts = one(48, 1, text="a"), one(64, 1, arrival=1.0), one(48, 1, arrival=2.0, text="a")
    outcome = run(*scripts, kv_blocks=4, host_blocks=3)
    assert rows(outcome)[2].cached_tokens == 0
    assert outcome.stats[0]["host_in_blocks"] == 0


A, B, C = (((number, 16),) for number in (1, 2, 3))


def test_content_that_enters_again_is_the_most_recent() -> None:
    host = HostMemory(2, keeps=True)
    for content in (A, B, A, C):
        host.enter(content)
    assert [host.find(content, 17, 0) for content in (A, B, C)] == [[A], [], [C]]
    assert (host.entered, host.dropped) == (3, 1)
    host.check([], 0)


def test_copies_push_content_out_but_content_no_copy() -> None:
    host = HostMemory(3, keeps=True)
    for content in (A, B, C):
        host.enter(content)
    assert not host.copy_in(4)
    assert (host.tier, host.dropped) == (3, 0)
    assert host.copy_in(3)
    assert (host.tier, host.dropped) == (0, 3)
    host.enter(A)  # no room at all: lost, and not counted
    assert (host.entered, host.dropped) == (3, 3)
    host.give_up(1)
    host.enter(A)
    host.check([2], 0)


def test_a_gap_ends_what_the_host_can_give() -> None:
    host = HostMemory(9, keeps=True)
    text = ((7, 80),)
    for end in (16, 48, 64):
        host.enter(content_of(text, end))
    assert len(host.find(text, 80, 0)) == 1
    assert len(host.find(text, 80, 2)) == 2  # behind two blocks on the GPU
    assert len(host.find(text, 64, 2)) == 1  # the last token of 64 is computed


@pytest.mark.parametrize(
    ("saved", "fetched", "copied", "start"), [(20, 2, 0, 32), (32, 0, 2, 32), (33, 0, 3, 33)]
)
def test_the_longer_of_copy_and_tier_is_used(saved: int, fetched: int, copied: int, start: int) -> None:
    config = EngineConfig(kv_blocks=8, preemption="swap", host_blocks=8, host_tier=True)
    state = EngineState(0, config, Ladder(LadderKnobs()))
    call = Call(0, 0, "", 0, 48)
    job = Job(call, Body(((7, 48),), 8, 5), Slot(0, 0.0), Finished(call, 0, 0.0), saved=saved)
    contents = [content_of(((7, 48),), end) for end in (16, 32)]
    for content in contents:
        state.host.enter(content)
    assert state.look_up(job) == Prefix([], contents[:fetched], copied, start)


# What a scheduler sees


def test_a_scheduler_may_order_by_cached_prefix() -> None:
    scripts = one(32, 2, text="q"), one(33, 1, arrival=0.5), one(33, 1, arrival=0.5, text="q")
    outcome = run(*scripts, max_num_seqs=1, policy=peek)
    assert [row.call.seq for row in outcome.finished] == [0, 2, 1]
    assert [d.value for d in outcome.decisions if d.rule == "arrive"] == [0, 0, -32]

"""The reference engine against examples computed by hand, one step a second."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings

from systems.engines.reference import ReferenceEngine
from tests.latency_models import ConstantLatency, LinearLatency
from tests.scenarios import Ask, Fork, Outcome, Scenario, Script, play
from tests.strategies import Ladder, LadderKnobs, ladder, ladders, scenarios
from vocabulary import INF, Body, Call, EngineConfig, Finished, Snapshot

A_SECOND = ConstantLatency(1.0)
ROOMY = EngineConfig(kv_blocks=100, max_num_seqs=8, record_steps=True)
NO_LADDER = LadderKnobs()


def run(
    *scripts: Script,
    config: EngineConfig = ROOMY,
    knobs: LadderKnobs = NO_LADDER,
    latency: ConstantLatency | LinearLatency = A_SECOND,
) -> Outcome:
    scenario = Scenario(scripts, replace(config, record_steps=True), latency)
    return play(ReferenceEngine, scenario, ladder(knobs), stride="single", after=lambda e: e.check())


def one(new: int, output: int, arrival: float = 0.0, text: str | None = None) -> Script:
    """A program of one call."""
    return Script((Ask(new, output, text=text),), arrival)


def rows(outcome: Outcome) -> dict[int, Finished]:
    return {row.call.seq: row for row in outcome.finished}


def batches(outcome: Outcome) -> dict[float, dict[int, int]]:
    return {step.start: dict(step.batch) for step in outcome.steps[0]}


def told(outcome: Outcome, *rules: str) -> list[tuple[float, int, str]]:
    return [(d.time, d.call, d.rule) for d in outcome.decisions if d.rule in rules]


# Prefix cache


@pytest.mark.parametrize(("output", "cached"), [(12, 16), (13, 32)])
def test_replies_are_cached_except_their_last_token(output: int, cached: int) -> None:
    second = rows(run(Script((Ask(20, output), Ask(5, 1)))))[1]
    assert second.cached_tokens == cached  # (20 + output - 1) // 16 blocks
    assert second.prefill_tokens == 25 + output - cached


def test_the_last_token_is_computed_even_if_every_block_is_cached() -> None:
    outcome = run(one(32, 1, text="q"), one(32, 1, arrival=5.0, text="q"), one(33, 1, arrival=9.0, text="q"))
    assert [row.cached_tokens for row in outcome.finished] == [0, 16, 32]
    assert outcome.stats[0]["hit_tokens"] == 48
    assert outcome.stats[0]["query_tokens"] == 97


def test_a_prompt_of_whole_blocks_owns_a_duplicate_of_its_last_block() -> None:
    tight = EngineConfig(kv_blocks=4)
    outcome = run(one(32, 20, text="q"), one(32, 17, arrival=1.0, text="q"), config=tight)
    # At 1 s the first takes a block for its reply, the second shares one and owns one: all 4 are used.
    # At 2 s the second needs one for its reply, and is the worst. Back at 3 s, it shares both.
    assert told(outcome, "evict")[0] == (2.0, 1, "evict")
    assert batches(outcome)[3.0] == {0: 1, 1: 1}


def test_siblings_admitted_in_one_step_share_blocks() -> None:
    fork = Fork(((Ask(3, 1),), (Ask(4, 1),)))
    outcome = run(Script((Ask(64, 1), fork)), config=replace(ROOMY, prefix_cache=True))
    assert [row.cached_tokens for row in outcome.finished] == [0, 64, 64]
    together = run(one(64, 2, text="system"), one(64, 2, text="system"))
    assert [row.cached_tokens for row in together.finished] == [0, 48]  # cached when scheduled
    assert together.finished[0].t_end == together.finished[1].t_end == 2.0


def test_a_truncated_context_hits_as_far_as_it_is_the_same() -> None:
    outcome = run(Script((Ask(40, 30), Ask(10, 1, keep=56))))
    assert outcome.finished[1].cached_tokens == 48  # 40 of the prompt, 16 of the reply, then new text


def test_without_prefix_cache_nothing_is_found() -> None:
    outcome = run(Script((Ask(64, 1), Ask(5, 1))), config=replace(ROOMY, prefix_cache=False))
    assert [row.cached_tokens for row in outcome.finished] == [0, 0]
    assert outcome.stats[0]["query_tokens"] == outcome.stats[0]["evicted_blocks"] == 0


def test_the_longest_idle_tail_is_evicted_first() -> None:
    config = EngineConfig(kv_blocks=6)
    first, second = one(48, 1, text="first"), one(32, 1, arrival=1.0, text="second")
    taker = one(17, 1, arrival=2.0)  # 1 plain block, then the last block of "first"
    again = one(49, 1, arrival=3.0, text="first")
    outcome = run(first, second, taker, again, config=config)
    assert [row.cached_tokens for row in outcome.finished] == [0, 0, 0, 32]
    assert (
        outcome.stats[0]["evicted_blocks"] == 1 + 1
    )  # the taker's; then "again" has the plain one, and one more


# Admission, chunks, eviction


def test_a_prompt_is_admitted_only_if_it_fits_whole() -> None:
    config = EngineConfig(kv_blocks=5, max_num_seqs=4, max_num_batched_tokens=17)
    second = rows(run(one(16, 20), one(64, 1, arrival=1.0), config=config))[1]
    assert second.t_first_sched == 20.0  # its first chunk would have fitted at 1 s
    assert second.t_end == 24.0
    assert second.wait_s == 19.0


def test_prefill_is_chunked_and_its_tail_leaves_room() -> None:
    config = EngineConfig(kv_blocks=100, max_num_seqs=4, max_num_batched_tokens=20)
    outcome = run(one(16, 6), one(50, 2, arrival=1.0), one(5, 1, arrival=1.0), config=config)
    assert list(batches(outcome).values()) == [
        {0: 16}, {0: 1, 1: 19}, {0: 1, 1: 19}, {0: 1, 1: 12, 2: 5}, {0: 1, 1: 1}, {0: 1}
    ]  # fmt: skip
    second = rows(outcome)[1]
    assert (second.prefill_s, second.decode_s, second.wait_s) == (3.0, 1.0, 0.0)
    assert (second.t_first_sched, second.t_first_token, second.t_end) == (1.0, 4.0, 5.0)


def test_no_admission_in_a_step_that_evicted() -> None:
    config = EngineConfig(kv_blocks=5, max_num_seqs=3, max_num_batched_tokens=3)
    knobs = LadderKnobs(first=(1, 0, 0, 0), quanta=(INF, INF))
    scripts = one(1, 30), one(1, 30, arrival=1.0), one(1, 30, arrival=1.0), one(1, 1, arrival=10.0)
    outcome = run(*scripts, config=config, knobs=knobs)
    # Call 3 cannot displace call 0 while three decodes use up the budget of three tokens.
    assert told(outcome, "displace", "evict") == [(17.0, 0, "evict")]
    assert batches(outcome)[17.0] == {1: 1, 2: 1}  # a token, a place and a block are left
    assert batches(outcome)[18.0] == {1: 1, 2: 1, 3: 1}


def test_a_call_that_preempts_itself_stops_the_pass() -> None:
    config = EngineConfig(kv_blocks=7, max_num_seqs=8)
    knobs = LadderKnobs(first=(0, 1, 0, 2), quanta=(INF, INF, INF))
    scripts = one(16, 30), one(16, 30, arrival=1.0), one(16, 30, arrival=2.0), one(1, 1, arrival=18.0)
    outcome = run(*scripts, config=config, knobs=knobs)
    assert told(outcome, "evict")[0] == (18.0, 1, "evict")
    assert batches(outcome)[17.0] == {0: 1, 1: 1, 2: 1}
    assert batches(outcome)[18.0] == {0: 1}  # nothing for call 2, and call 3 is not admitted
    assert batches(outcome)[19.0] == {0: 1, 2: 1}  # call 1 does not fit; call 3 would, but no backfill


def test_where_the_first_preempts_itself_the_boundary_repeats() -> None:
    config = EngineConfig(kv_blocks=4, max_num_seqs=8)
    knobs = LadderKnobs(first=(1, 0), quanta=(INF, INF))
    outcome = run(one(16, 30), one(16, 30, arrival=1.0), config=config, knobs=knobs)
    assert told(outcome, "evict") == [(17.0, 0, "evict")]
    assert batches(outcome)[17.0] == {1: 1}
    assert told(outcome, "admit")[:2] == [(0.0, 0, "admit"), (1.0, 1, "admit")]
    assert all(step.batch for step in outcome.steps[0])
    assert [step.preempted for step in outcome.steps[0] if step.start == 17.0] == [(0,)]
    assert rows(outcome)[0].steps == 30  # none is charged for the boundary that came to nothing


def test_a_victim_already_scheduled_leaves_the_batch() -> None:
    config = EngineConfig(kv_blocks=4, max_num_seqs=8)
    knobs = LadderKnobs(first=(1, 0), quanta=(INF, INF))
    # Call 0 has its third block from 16 s on; call 1 needs its second at 18 s, when call 0 is in the batch.
    outcome = run(one(17, 30), one(2, 30, arrival=3.0), config=config, knobs=knobs)
    assert told(outcome, "evict") == [(18.0, 0, "evict")]
    assert batches(outcome)[17.0] == {0: 1, 1: 1}
    assert batches(outcome)[18.0] == {1: 1}
    assert rows(outcome)[0].steps == 30  # not charged for the step it left


# Displacement, quanta, promotion

TWO = LadderKnobs(first=(1, 0), quanta=(INF, INF))


def test_a_better_level_displaces_and_recompute_starts_from_the_cache() -> None:
    outcome = run(one(16, 6), one(4, 3, arrival=2.0), config=EngineConfig(20, max_num_seqs=1), knobs=TWO)
    assert told(outcome, "displace") == [(2.0, 0, "displace")]
    assert list(batches(outcome).values()) == [
        {0: 16},
        {0: 1},
        *[{1: 4}, {1: 1}, {1: 1}],
        {0: 2},
        *[{0: 1}] * 3,
    ]
    first = rows(outcome)[0]
    assert (first.preemptions, first.prefill_tokens, first.reprefill_tokens) == (1, 16, 2)
    assert (first.prefill_s, first.reprefill_s, first.decode_s, first.wait_s) == (1.0, 1.0, 4.0, 3.0)


def test_a_level_never_displaces_its_own() -> None:
    level = LadderKnobs(first=(0,), quanta=(INF,))
    outcome = run(one(16, 6), one(4, 3, arrival=2.0), config=EngineConfig(20, max_num_seqs=1), knobs=level)
    assert told(outcome, "displace") == []
    assert rows(outcome)[1].t_first_sched == 6.0


def test_a_partial_prefill_that_holds_the_budget_is_displaced() -> None:
    config = EngineConfig(kv_blocks=20, max_num_seqs=4, max_num_batched_tokens=16)
    outcome = run(one(48, 1), one(8, 2, arrival=1.0), config=config, knobs=TWO)
    assert told(outcome, "displace") == [(1.0, 0, "displace")]
    # It is admitted again behind its better: its first block is a hit, and 8 tokens of budget are left.
    assert list(batches(outcome).values()) == [{0: 16}, {1: 8, 0: 8}, {1: 1, 0: 15}, {0: 9}]


def test_displacement_takes_as_many_victims_as_the_prompt_needs() -> None:
    config = EngineConfig(kv_blocks=6, max_num_seqs=8)
    knobs = LadderKnobs(first=(1, 2, 0), quanta=(INF, INF, INF))
    outcome = run(one(16, 9), one(16, 9), one(48, 1, arrival=3.0), config=config, knobs=knobs)
    assert told(outcome, "displace") == [(3.0, 1, "displace")]  # 2 blocks of the worst are enough


def test_expiry_is_asked_at_the_first_boundary_where_the_quantum_is_used_up() -> None:
    knobs = LadderKnobs(quanta=(2.0, 2.0, INF))
    outcome = run(one(16, 6), knobs=knobs)
    assert told(outcome, "expire") == [(2.0, 0, "expire"), (4.0, 0, "expire")]
    assert rows(outcome)[0].demotions == 2
    assert rows(outcome)[0].preemptions == 0  # it stays in the batch


def test_a_demoted_call_goes_behind_those_who_wait_in_its_new_level() -> None:
    knobs = LadderKnobs(first=(0, 1), quanta=(2.0, INF))
    scripts = one(16, 4), one(4, 2, arrival=1.0)
    outcome = run(*scripts, config=EngineConfig(20, max_num_seqs=1), knobs=knobs)
    assert told(outcome, "expire", "displace", "finish") == [
        (2.0, 0, "expire"), (2.0, 0, "displace"), (4.0, 1, "finish"), (6.0, 0, "finish"),
    ]  # fmt: skip


def test_a_demoted_call_stays_ahead_of_those_who_come_later() -> None:
    knobs = LadderKnobs(first=(0, 1), quanta=(2.0, INF))
    scripts = one(16, 4), one(4, 2, arrival=3.0)
    outcome = run(*scripts, config=EngineConfig(20, max_num_seqs=1), knobs=knobs)
    assert told(outcome, "displace", "finish") == [(4.0, 0, "finish"), (6.0, 1, "finish")]


def test_displacement_looks_again_at_every_step() -> None:
    """Call 1 fits at 1 s when displacement looks, but no more when call 0 has taken its block."""
    config = EngineConfig(kv_blocks=4, max_num_seqs=2)
    outcome = run(one(16, 40), one(48, 1, arrival=1.0), config=config, knobs=TWO)
    assert told(outcome, "displace") == [(2.0, 0, "displace")]


@pytest.mark.parametrize(
    ("unit", "quantum", "at", "served"),
    [("step", 3.0, 1.5, 6.0), ("s", 1.5, 1.5, 3.0), ("s", 1.25, 1.5, 3.0), ("token", 17.0, 1.0, 21.0)],
)
def test_the_unit_of_service(unit: str, quantum: float, at: float, served: float) -> None:
    knobs = LadderKnobs(quanta=(quantum, INF), unit=unit)
    outcome = run(one(16, 6), knobs=knobs, latency=ConstantLatency(0.5))
    assert told(outcome, "expire") == [(at, 0, "expire")]
    assert rows(outcome)[0].served == served


def test_a_call_that_finishes_does_not_expire() -> None:
    assert told(run(one(16, 2), knobs=LadderKnobs(quanta=(2.0, INF))), "expire", "finish") == [
        (2.0, 0, "finish")
    ]


def test_promotion_moves_a_waiting_call_before_displacement() -> None:
    knobs = LadderKnobs(first=(1, 2), quanta=(INF, INF, INF), patience=3.0)
    outcome = run(one(16, 9), one(4, 1), config=EngineConfig(20, max_num_seqs=1), knobs=knobs)
    assert told(outcome, "promote", "displace", "finish") == [
        (3.0, 1, "promote"), (3.0, 0, "displace"), (4.0, 1, "finish"), (10.0, 0, "finish"),
    ]  # fmt: skip


# Time, abort, limits


def test_arrival_inside_a_step_waits_for_its_end() -> None:
    second = rows(run(one(16, 2), one(4, 1, arrival=0.5)))[1]
    assert (second.t_arrive, second.t_first_sched, second.wait_s, second.prefill_s) == (0.5, 1.0, 0.5, 1.0)


def test_an_idle_engine_starts_when_a_call_comes() -> None:
    outcome = run(one(16, 1), one(4, 1, arrival=7.25))
    assert outcome.finished[1].t_end == 8.25
    assert outcome.stats[0]["busy_s"] == 2.0
    assert outcome.stats[0]["kv_block_seconds"] == 2.0


def test_an_aborted_call_is_charged_and_leaves_its_prefix() -> None:
    leaver = Script((Ask(32, 50, text="q"),), leaves=2.5)
    outcome = run(leaver, one(33, 1, arrival=9.0, text="q"))
    gone, second = outcome.finished
    assert (gone.aborted, gone.t_end, gone.output_tokens, gone.served) == (True, 3.0, 3, 3.0)
    assert (gone.wait_s, gone.prefill_s, gone.decode_s) == (0.0, 1.0, 2.0)
    assert second.cached_tokens == 32
    assert outcome.stats[0]["calls_aborted"] == 1


def test_a_waiting_call_can_be_aborted() -> None:
    config = EngineConfig(20, max_num_seqs=1)
    outcome = run(one(16, 9), Script((Ask(4, 1),), leaves=2.0), config=config)
    gone = outcome.finished[0]
    assert (gone.aborted, gone.t_end, gone.wait_s, gone.t_first_sched) == (True, 2.0, 2.0, INF)


def test_abort_of_an_unknown_call_is_none() -> None:
    engine = ReferenceEngine(0, ROOMY, Ladder(NO_LADDER), ConstantLatency())
    assert engine.abort(Call(0, 0, "", 0, 5), 0.0) is None
    assert engine.clock() == INF


@pytest.mark.parametrize(
    ("config", "tokens", "word"),
    [(EngineConfig(10, max_model_len=40), 41, "max_model_len 40"), (EngineConfig(2), 34, "3 KV blocks")],
)
def test_what_can_never_fit_is_refused(config: EngineConfig, tokens: int, word: str) -> None:
    engine = ReferenceEngine(0, config, Ladder(NO_LADDER), ConstantLatency())
    engine.submit(Call(0, 0, "", 0, tokens - 2), Body(((1, tokens - 2),), 9, 1), Snapshot(), 0.0)
    with pytest.raises(ValueError, match=word):
        engine.submit(Call(1, 0, "", 1, tokens - 1), Body(((1, tokens - 1),), 9, 1), Snapshot(), 0.0)


def test_an_unknown_unit_is_refused() -> None:
    with pytest.raises(ValueError, match="'hours'"):
        ReferenceEngine(0, ROOMY, Ladder(LadderKnobs(unit="hours")), ConstantLatency())


# Invariants


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(scenarios(), ladders())
def test_invariants(scenario: Scenario, knobs: LadderKnobs) -> None:
    outcome = play(ReferenceEngine, scenario, ladder(knobs), stride="single", after=lambda e: e.check())
    assert set(outcome.program_end) == set(range(len(scenario.scripts)))
    arrived = [d.call for d in outcome.decisions if d.rule == "arrive"]
    assert sorted(arrived) == sorted(row.call.seq for row in outcome.finished)
    for row in outcome.finished:
        assert row.t_end - row.t_arrive == row.prefill_s + row.reprefill_s + row.decode_s + row.wait_s
        assert row.wait_s >= 0
    for steps in outcome.steps:
        check_steps(steps, scenario.config)
    conserved(outcome)


def check_steps(steps: list, config: EngineConfig) -> None:
    for before, after in pairwise(steps):
        assert after.start >= before.start + before.seconds
    for step in steps:
        assert 0 < sum(n for _, n in step.batch) <= config.max_num_batched_tokens
        assert len(step.batch) <= config.max_num_seqs


def conserved(outcome: Outcome) -> None:
    """Every token that was scheduled is in exactly one row, and every finished call has its reply."""
    computed = sum(s["computed_prefill_tokens"] + s["decode_tokens"] for s in outcome.stats)
    assert computed == sum(n for steps in outcome.steps for step in steps for _, n in step.batch)
    for row in outcome.finished:
        in_steps = sum(dict(s.batch).get(row.call.seq, 0) for steps in outcome.steps for s in steps)
        decodes = in_steps - row.prefill_tokens - row.reprefill_tokens
        assert decodes >= 0
        if not row.aborted and not row.preemptions:
            assert row.prefill_tokens == row.call.prompt_tokens - row.cached_tokens
            assert decodes == row.output_tokens - 1


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(scenarios(), ladders())
def test_how_far_the_host_lets_it_run_changes_nothing(scenario: Scenario, knobs: LadderKnobs) -> None:
    far = play(ReferenceEngine, scenario, ladder(knobs))
    assert far.same(play(ReferenceEngine, scenario, ladder(knobs), stride="single"))

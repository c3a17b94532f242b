"""What must hold under every option of docs/engine-options.md: blocks, copies, times, no work done twice."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from systems.catalog import scheduler_names
from systems.engines.reference import ReferenceEngine
from systems.engines.reference_job import Job
from systems.engines.reference_state import Prefix
from systems.engines.sim import SimEngine
from tests.latency_models import ConstantLatency
from tests.live.seeded import scheduler, system
from tests.recount import recount
from tests.scenarios import Outcome, Scenario, play
from tests.strategies import LadderKnobs, ladder, ladders, optional_scenarios, peek, seeded_options
from vocabulary import BLOCK

SOME = settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
ROOMY = 500


def add_up(outcome: Outcome) -> None:
    """Times are exact, and the engines' totals are those of the rows."""
    for row in outcome.finished:
        parts = (row.prefill_s, row.reprefill_s, row.decode_s, row.swap_s, row.wait_s)
        assert row.t_end - row.t_arrive == sum(parts)
        assert min(parts) >= 0
    for total, column in (("preemptions", "preemptions"), ("hit_tokens", "cached_tokens")):
        of_rows = sum(getattr(row, column) for row in outcome.finished)
        if total == "preemptions" or outcome.stats[0]["query_tokens"]:
            assert sum(stats[total] for stats in outcome.stats) == of_rows
    for stats in outcome.stats:
        assert stats["preemptions"] == stats["displaced"] + stats["evicted"]
        assert stats["swap_in_blocks"] <= stats["swap_out_blocks"]
        assert stats["swap_s"] <= stats["busy_s"]


def steps_explain_rows(outcome: Outcome) -> None:
    """Every second of execution lies in a step in which the call got tokens."""
    spent: dict[int, float] = {}
    for step in (step for steps in outcome.steps for step in steps):
        for seq, _ in step.batch:
            spent[seq] = spent.get(seq, 0.0) + step.seconds
    for row in outcome.finished:
        executed = row.prefill_s + row.reprefill_s + row.decode_s + row.swap_s
        assert executed == spent.get(row.call.seq, 0.0)


@SOME
@given(optional_scenarios(), ladders(min_levels=2), st.sampled_from([ladder, peek]))
def test_everything_adds_up_at_every_boundary(case: Scenario, knobs: LadderKnobs, policy: type) -> None:
    outcome = play(ReferenceEngine, case, policy(knobs), stride="single", after=lambda e: e.check())
    assert set(outcome.program_end) == set(range(len(case.scripts)))
    add_up(outcome)
    steps_explain_rows(outcome)
    if isinstance(case.latency, ConstantLatency):
        for stats in outcome.stats:
            assert stats["busy_s"] - stats["swap_s"] == stats["steps"] * case.latency.seconds


class Fetching(ReferenceEngine):
    """Notes what its admissions fetch from the host."""

    def admit(self, job: Job, prefix: Prefix, now: float) -> None:
        super().admit(job, prefix, now)
        self.fetched = [*getattr(self, "fetched", ()), *prefix.fetched]

    def check(self) -> None:
        super().check()
        for content in getattr(self, "fetched", ()):
            tokens = sum(length for _, length in content)
            assert len(self.kv.find(content, tokens + 1)) * BLOCK == tokens, "fetched, and not on the GPU"
            assert not self.host.find(content, tokens + 1, tokens // BLOCK - 1), "fetched, and still there"
        self.fetched = []


@SOME
@given(optional_scenarios("tier"), ladders(min_levels=2), st.booleans())
def test_fetched_content_moves(case: Scenario, knobs: LadderKnobs, swap: bool) -> None:
    config = replace(case.config, preemption="swap" if swap else "recompute")
    play(Fetching, replace(case, config=config), ladder(knobs), stride="single", after=lambda e: e.check())


@SOME
@given(optional_scenarios(), ladders(min_levels=2), st.booleans())
def test_sim_loses_no_block(case: Scenario, knobs: LadderKnobs, jumps: bool) -> None:
    case = replace(case, config=replace(case.config, record_steps=not jumps))
    engines: list[SimEngine] = []

    def make(*arguments: object) -> SimEngine:
        engines.append(SimEngine(*arguments))  # type: ignore[arg-type]
        return engines[-1]

    add_up(play(make, case, ladder(knobs), after=recount))
    for engine in engines:
        assert engine.kv.free() == engine.kv.total


@pytest.mark.parametrize("name", scheduler_names())
def test_every_scheduler_adds_up(name: str) -> None:
    for seed in range(3000, 3002):
        outcome = play(
            ReferenceEngine, seeded_options(seed), scheduler(name, seed), rule=system(name, seed).rule,
            stride="single", after=lambda e: e.check(),
        )  # fmt: skip
        add_up(outcome)


@SOME
@given(optional_scenarios("whole prompts"), ladders(min_levels=2), st.sampled_from([1, 3]))
def test_without_chunks_a_step_prefills_or_decodes(case: Scenario, knobs: LadderKnobs, every: int) -> None:
    case = replace(case, engines=1, config=replace(case.config, schedule_every=every))
    outcome = play(SimEngine, case, ladder(knobs))
    admitted: dict[float, set[int]] = {}
    for decision in outcome.decisions:
        if decision.rule == "admit":
            admitted.setdefault(decision.time, set()).add(decision.call)
    for step in outcome.steps[0]:
        assert admitted.get(step.start, {seq for seq, _ in step.batch}) == {seq for seq, _ in step.batch}
        tokens = sum(n for _, n in step.batch)
        assert tokens <= case.config.max_num_batched_tokens or len(step.batch) == 1


@SOME
@given(optional_scenarios("swap"), ladders(min_levels=2), st.booleans())
def test_with_room_on_the_host_no_token_is_computed_twice(
    case: Scenario, knobs: LadderKnobs, whole: bool
) -> None:
    config = replace(case.config, host_blocks=ROOMY, chunked_prefill=not whole)
    outcome = play(SimEngine, replace(case, config=config), ladder(knobs))
    assert sum(stats["swap_full"] for stats in outcome.stats) == 0
    for row in outcome.finished:
        computed = row.cached_tokens + row.prefill_tokens + row.reprefill_tokens
        assert computed <= row.call.prompt_tokens
        if not row.aborted and not row.preemptions:
            assert computed == row.call.prompt_tokens


@SOME
@given(optional_scenarios("hold"), ladders(min_levels=2), st.booleans())
def test_with_room_on_the_gpu_a_held_call_computes_nothing_again(
    case: Scenario, knobs: LadderKnobs, whole: bool
) -> None:
    config = replace(case.config, kv_blocks=ROOMY, chunked_prefill=not whole)
    outcome = play(SimEngine, replace(case, config=config), ladder(knobs))
    assert sum(stats["evicted"] for stats in outcome.stats) == 0
    for row in outcome.finished:
        assert row.reprefill_tokens == 0
        if not row.aborted:
            assert row.cached_tokens + row.prefill_tokens == row.call.prompt_tokens

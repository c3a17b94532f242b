"""The lazy engine is the reference engine under every option of docs/engine-options.md, to the last bit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from systems.catalog import scheduler_names
from systems.engines.reference import ReferenceEngine
from systems.engines.sim import SimEngine
from systems.process_table import ProcessTable
from systems.protocols import Scheduler
from tests.latency_models import BlockTransfer
from tests.live.seeded import scheduler, system
from tests.scenarios import Ask, EngineMaker, Outcome, Scenario, Script, play
from tests.strategies import OPTIONS, LadderKnobs, ladder, ladders, optional_scenarios, peek, seeded_options
from vocabulary import INF, EngineConfig

Schedulers = Callable[[ProcessTable], Scheduler]
CHECKED = HealthCheck.too_slow, HealthCheck.data_too_large


def assert_same(
    case: Scenario, policy: Schedulers, rule: str = "sum", stride: str = "far"
) -> dict[str, float]:
    """Play on both engines; the totals of the first."""

    def outcome(engine: EngineMaker, far: str) -> Outcome:
        played = play(engine, case, policy, rule=rule, stride=far)
        for stats in played.stats:
            if not case.config.record_steps:
                del stats["kv_block_seconds"]  # sim integrates a decode jump by its ends
        return played

    first, second = outcome(ReferenceEngine, "far"), outcome(SimEngine, stride)
    assert first.decisions == second.decisions
    assert first.rows == second.rows
    assert first.stats == second.stats
    assert first.same(second)
    return first.stats[0]


def jumping(case: Scenario, jumps: bool) -> Scenario:
    return replace(case, config=replace(case.config, record_steps=not jumps))


@pytest.mark.parametrize("option", OPTIONS)
@settings(max_examples=25, deadline=None, suppress_health_check=CHECKED)
@given(
    data=st.data(),
    knobs=ladders(min_levels=2),
    jumps=st.booleans(),
    stride=st.sampled_from(["far", "single"]),
)
def test_one_option(option: str, data: st.DataObject, knobs: LadderKnobs, jumps: bool, stride: str) -> None:
    case = data.draw(optional_scenarios(option))
    assert_same(jumping(case, jumps), ladder(knobs), stride=stride)


@settings(max_examples=40, deadline=None, suppress_health_check=CHECKED)
@given(optional_scenarios(), ladders(min_levels=2), st.booleans())
def test_any_mixture_of_options(case: Scenario, knobs: LadderKnobs, jumps: bool) -> None:
    assert_same(jumping(case, jumps), ladder(knobs))


@settings(max_examples=20, deadline=None, suppress_health_check=CHECKED)
@given(optional_scenarios(), ladders(min_levels=2), st.booleans())
def test_a_scheduler_that_reads_the_cache(case: Scenario, knobs: LadderKnobs, jumps: bool) -> None:
    assert_same(jumping(case, jumps), peek(knobs))


# What generated programs rarely meet


@pytest.mark.parametrize("jumps", [True, False])
def test_the_tier_may_have_more_of_a_prompt_than_the_call_s_own_copy(jumps: bool) -> None:
    """Call 0 is swapped out after 16 tokens; call 1 computes all of that text; call 2 pushes it off."""
    scripts = (
        Script((Ask(64, 1, text="a"),)), Script((Ask(64, 1, text="a"),), 1.0), Script((Ask(80, 1),), 1.5)
    )  # fmt: skip
    config = EngineConfig(
        5, max_num_seqs=1, max_num_batched_tokens=16, preemption="swap", host_tier=True, host_blocks=10
    )
    case = Scenario(scripts, config, transfer=BlockTransfer(0.25))
    stats = assert_same(jumping(case, jumps), ladder(LadderKnobs((1, 0, 0), (INF, INF))))
    assert (stats["swap_out_blocks"], stats["swap_in_blocks"], stats["host_hit_tokens"]) == (1, 0, 48)


@pytest.mark.parametrize("unit", ["step", "s", "token"])
def test_who_gets_nothing_in_a_step_pays_no_transfer(unit: str) -> None:
    """At 18 s call 1 runs out of blocks and is swapped out; call 2, behind it, gets nothing in that step."""
    scripts = tuple(Script((Ask(16, 30),), at) for at in (0.0, 1.0, 2.0))
    config = EngineConfig(7, max_num_seqs=8, preemption="swap", host_blocks=10)
    knobs = LadderKnobs((0, 1, 0), (INF, INF), unit)
    case = Scenario(scripts, config, transfer=BlockTransfer(0.25))
    for jumps in (True, False):
        assert assert_same(jumping(case, jumps), ladder(knobs))["swap_outs"] == 1


# Every scheduler of the catalog, on larger seeded workloads


@pytest.mark.parametrize("name", scheduler_names())
@pytest.mark.parametrize("seed", range(2))
def test_seeded_workloads(name: str, seed: int) -> None:
    seed += 1000 + 2 * scheduler_names().index(name)
    assert_same(seeded_options(seed), scheduler(name, seed), system(name, seed).rule)


@pytest.mark.slow
@pytest.mark.parametrize("name", scheduler_names())
def test_many_seeded_workloads(name: str) -> None:
    for seed in range(2000, 2300):
        assert_same(seeded_options(seed), scheduler(name, seed), system(name, seed).rule)


@pytest.mark.slow
@settings(max_examples=3000, deadline=None, suppress_health_check=CHECKED)
@given(optional_scenarios(), ladders(min_levels=2), st.booleans(), st.sampled_from([ladder, peek]))
def test_many_mixtures(case: Scenario, knobs: LadderKnobs, jumps: bool, policy: Callable) -> None:
    assert_same(jumping(case, jumps), policy(knobs))

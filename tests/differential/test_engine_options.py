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
from tests.live.seeded import scheduler, system
from tests.scenarios import EngineMaker, Outcome, Scenario, play
from tests.strategies import OPTIONS, LadderKnobs, ladder, ladders, optional_scenarios, peek, seeded_options

Schedulers = Callable[[ProcessTable], Scheduler]
CHECKED = HealthCheck.too_slow, HealthCheck.data_too_large


def assert_same(case: Scenario, policy: Schedulers, rule: str = "sum", stride: str = "far") -> None:
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


# Every scheduler of the catalog, on larger seeded workloads


@pytest.mark.parametrize("name", scheduler_names())
@pytest.mark.parametrize("seed", range(3))
def test_seeded_workloads(name: str, seed: int) -> None:
    seed += 1000 + 4 * scheduler_names().index(name)
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

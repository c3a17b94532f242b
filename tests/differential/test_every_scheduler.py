"""Lazy == reference to the last bit under every scheduler, anti-starvation and all units included."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from systems.catalog import scheduler_names
from systems.engines.reference import ReferenceEngine
from systems.engines.sim import SimEngine
from tests.live.seeded import scenario, scheduler, system
from tests.scenarios import EngineMaker, Outcome, Scenario, play
from tests.strategies import scenarios


def outcome(engine: EngineMaker, case: Scenario, name: str, seed: int, stride: str) -> Outcome:
    played = play(engine, case, scheduler(name, seed), rule=system(name, seed).rule, stride=stride)
    for stats in played.stats:
        del stats["kv_block_seconds"]  # sim integrates a decode jump by its ends
    return played


def assert_same(case: Scenario, name: str, seed: int, stride: str = "far") -> None:
    first = outcome(ReferenceEngine, case, name, seed, "far")
    second = outcome(SimEngine, case, name, seed, stride)
    assert first.decisions == second.decisions
    assert first.same(second)


@pytest.mark.parametrize("name", scheduler_names())
@settings(max_examples=40, derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(case=scenarios(), seed=st.integers(0, 200), stride=st.sampled_from(["far", "single"]))
def test_generated_workloads(name: str, case: Scenario, seed: int, stride: str) -> None:
    """``seed`` chooses unit, beta and bounds of the policy."""
    case = replace(case, config=replace(case.config, record_steps=False))
    assert_same(case, name, seed, stride)


@pytest.mark.parametrize("name", scheduler_names())
@pytest.mark.parametrize("seed", [*range(12), 155])
def test_seeded_workloads(name: str, seed: int) -> None:
    """155: a call displaced at a boundary is due for promotion at once; the step runs all the same."""
    assert_same(scenario(seed, engines=1 + seed % 3), name, seed)


@pytest.mark.slow
@pytest.mark.parametrize("name", scheduler_names())
def test_many_seeded_workloads(name: str) -> None:
    for seed in range(200, 600):
        assert_same(scenario(seed, engines=1 + seed % 3), name, seed)

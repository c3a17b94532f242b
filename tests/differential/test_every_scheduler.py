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
from tests.scenarios import Ask, EngineMaker, Outcome, Scenario, Script, play
from tests.strategies import scenarios
from vocabulary import EngineConfig, on_grid


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


def impatient(case: Scenario) -> Scenario:
    """Nobody waits longer than 4 000 full steps: where a quantum is shorter than a prefill, calls that
    recompute get nowhere (systems/schedulers/round_robin.py), and a workload would never end."""
    step = case.latency.step(((case.config.max_num_batched_tokens, 0),), 0, 0)
    last = on_grid(4_000 * step)
    scripts = (s if s.leaves is not None else replace(s, leaves=last) for s in case.scripts)
    return replace(case, scripts=tuple(scripts))


def test_two_calls_that_get_nowhere() -> None:
    """A token a step, 64 steps a turn, prompts of 100: neither ever ends, in both engines alike."""
    config = EngineConfig(kv_blocks=8, max_num_seqs=1, max_num_batched_tokens=1, prefix_cache=False)
    case = impatient(Scenario(tuple(Script((Ask(100, 2),)) for _ in range(2)), config))
    assert_same(case, "round-robin", 0)
    played = outcome(ReferenceEngine, case, "round-robin", 0, "far")
    assert [row.aborted for row in played.finished] == [True, True]
    assert min(row.preemptions for row in played.finished) > 20


@pytest.mark.parametrize("name", scheduler_names())
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(case=scenarios(), seed=st.integers(0, 200), stride=st.sampled_from(["far", "single"]))
def test_generated_workloads(name: str, case: Scenario, seed: int, stride: str) -> None:
    """``seed`` chooses unit, beta and bounds of the policy."""
    case = impatient(replace(case, config=replace(case.config, record_steps=False)))
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

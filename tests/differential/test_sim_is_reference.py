"""The lazy engine is the reference engine, to the last bit."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from systems.engines.reference import ReferenceEngine
from systems.engines.sim import SimEngine
from tests.latency_models import ConstantLatency
from tests.scenarios import Ask, Outcome, Scenario, Script, play
from tests.strategies import LadderKnobs, ladder, ladders, scenarios
from vocabulary import INF, EngineConfig


def both(scenario: Scenario, knobs: LadderKnobs, record_steps: bool) -> tuple[Outcome, Outcome]:
    scenario = replace(scenario, config=replace(scenario.config, record_steps=record_steps))
    first, second = (play(engine, scenario, ladder(knobs)) for engine in (ReferenceEngine, SimEngine))
    for stats in (*first.stats, *second.stats):
        if not record_steps:  # sim integrates a jump by its ends
            del stats["kv_block_seconds"]
    return first, second


def assert_same(first: Outcome, second: Outcome) -> None:
    assert first.decisions == second.decisions
    assert first.rows == second.rows
    assert first.stats == second.stats
    assert first.same(second)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(scenarios(), ladders(), st.booleans())
def test_same_to_the_last_bit(scenario: Scenario, knobs: LadderKnobs, record_steps: bool) -> None:
    assert_same(*both(scenario, knobs, record_steps))


@pytest.mark.parametrize("record_steps", [True, False])
def test_a_jump_ends_where_displacement_must_look_again(record_steps: bool) -> None:
    """Call 1 fits at 1 s when displacement looks, but no more when call 0 has taken its block."""
    scripts = Script((Ask(16, 40),)), Script((Ask(48, 1),), 1.0)
    config = EngineConfig(kv_blocks=4, max_num_seqs=2)
    assert_same(
        *both(Scenario(scripts, config, ConstantLatency(1.0)), LadderKnobs((1, 0), (INF, INF)), record_steps)
    )


def test_a_call_that_comes_back_in_the_step_that_displaced_it_finishes_in_its_new_place() -> None:
    """Its old place in the order of finishing is for the same step, and must not count."""
    scripts = (
        Script((Ask(1, 3),), 0.0),
        Script((Ask(1, 2),), 1.0),
        Script((Ask(1, 2),), 1.0),
        Script((Ask(1, 1),), 1.0),
    )
    config = EngineConfig(kv_blocks=16, max_num_seqs=3)
    for first in ((0, 0), (1, 0), (2, 1, 0), (0, 1, 0)):
        knobs = LadderKnobs(first, (1.0, 1.0, INF))
        assert_same(*both(Scenario(scripts, config, ConstantLatency(1.0)), knobs, record_steps=False))

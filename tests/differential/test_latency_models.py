"""sim and reference agree bit for bit under every kind of step time: tables, roofline, parts varied."""

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings

from systems.engines.reference import ReferenceEngine
from systems.engines.sim import SimEngine
from systems.latency import ScaledLatency, latency_for
from tests.scenarios import Scenario, play
from tests.strategies import LadderKnobs, ladder, ladders, scenarios

MODELS = {
    model.name: model
    for model in (
        latency_for("llama-3.1-70b", "a100"),
        latency_for("falcon-180b", "a100"),
        latency_for("llama-3.1-8b", "h100", {"prefill": 1.15, "decode": 0.85, "overhead": 1.3}),
        latency_for("llama-3.1-8b", "rtx4090"),
        ScaledLatency(latency_for("qwen3-8b", "a100"), 1.07, 0.9, decode=1.15),
    )
}


@pytest.mark.parametrize("name", MODELS)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(scenario=scenarios(), knobs=ladders())
def test_same_to_the_last_bit(name: str, scenario: Scenario, knobs: LadderKnobs) -> None:
    scenario = replace(scenario, latency=MODELS[name])
    first, second = (play(engine, scenario, ladder(knobs)) for engine in (ReferenceEngine, SimEngine))
    assert first.rows == second.rows
    assert first.decisions == second.decisions

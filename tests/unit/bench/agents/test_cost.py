"""Engine-seconds: every busy second is somebody's, and they add up exactly."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.agents.cost import cost_of, seconds_of, shared
from bench.agents.money import priced
from bench.live.rows import totals
from tests.unit.bench.agents.runs import log_of, step
from vocabulary import GRID, on_grid


@settings(deadline=None)
@given(st.floats(0, 10).map(on_grid), st.lists(st.integers(0, 4096), max_size=16))
def test_shares_add_up_exactly_and_are_in_proportion(seconds, tokens):
    parts = shared(seconds, tokens)
    assert len(parts) == len(tokens)
    assert math.fsum(parts) == (seconds if tokens else 0.0)
    assert all(part >= 0 for part in parts)
    for part, n in zip(parts, tokens, strict=True):
        if sum(tokens):
            assert part == pytest.approx(seconds * n / sum(tokens), abs=2 * GRID)


STEPS = [
    step(0.0, 1.0, [("0.main.0", 300), ("1.main.0", 100)]),
    step(0.5, 2.0, [("0.main.0", 1), ("1.main.0", 1)]),  # overlaps the one before by half a second
    step(4.0, 5.0, [("1.main.0", 1)]),
]


def test_by_hand_and_against_the_engines_busy_time():
    by_program, nobody = seconds_of([log_of({}, STEPS)])
    assert by_program == {0: 0.75 + 0.5, 1: 0.25 + 0.5 + 1.0}
    assert nobody == 0.0
    assert math.fsum(by_program.values()) == totals(log_of({}, STEPS), {})["busy_s"] == 3.0


@settings(deadline=None)
@given(st.lists(st.tuples(st.floats(0, 1).map(on_grid), st.integers(1, 9), st.integers(1, 9)), max_size=20))
def test_of_any_steps_the_sum_is_the_busy_time(drawn):
    steps, now = [], 0.0
    for seconds, a, b in drawn:
        steps.append(step(now, now + seconds, [("0.main.0", a), ("1.map-0.0", b), ("2.main.1", 7)]))
        now += seconds
    logs = [log_of({}, steps), log_of({}, STEPS, engine=1)]
    by_program, nobody = seconds_of(logs)
    assert math.fsum(by_program.values()) + nobody == sum(totals(log, {})["busy_s"] for log in logs)


def test_a_step_without_calls_of_the_run_is_nobodys():
    lone = {**step(0.0, 1.0, []), "preempted": ["x"]}
    assert seconds_of([log_of({}, [lone])]) == ({}, 1.0)


def test_costs_per_program_and_per_solved_one_with_a_price():
    cost = cost_of([log_of({}, STEPS)], 2, 1, 10.0, "gpu")
    assert (cost["unit"], cost["busy_s"], cost["per_program"], cost["per_solved"]) == (
        "GPU-seconds",
        3.0,
        1.5,
        3.0,
    )
    assert cost["held_s"] == 10.0
    told = priced(cost, 7200.0)["price"]
    assert told == {"per_hour": 7200.0, "per_program": 3.0, "per_solved": 6.0, "run_held": 20.0}
    assert priced(cost, None) == cost
    assert cost_of([log_of({}, STEPS)], 2, 0, 10.0, "cpu")["unit"] == "engine-seconds"
    assert "note" in cost_of([], 2, 1, 10.0, "cpu")

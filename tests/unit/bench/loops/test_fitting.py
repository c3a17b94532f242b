import math
import re

import pytest

from bench.loops.fitting import TOLERANCE, TRIES, Fitted, knobs, search
from systems.latency.scaled import LEAST, MOST


def fit(rate, target):
    asking = search(target)
    scale = next(asking)
    asked = [scale]
    while True:
        try:
            scale = asking.send(rate(scale))
        except StopIteration as stop:
            return stop.value, asked
        asked.append(scale)


@pytest.mark.parametrize("target", [50.0, 120.0, 222.0, 400.0])
@pytest.mark.parametrize("tool_s", [0.0, 1.5])
def test_it_finds_the_scale_of_steps_beside_tools(target, tool_s):
    def rate(scale):
        return 60 * 24 / (5.0 * scale + tool_s)

    found, asked = fit(rate, target)
    assert abs(math.log(found.got / target)) <= TOLERANCE
    assert found.reached
    assert found.got == rate(found.scale)
    assert found.tries == len(asked) == len(set(asked)) <= TRIES


def test_tools_that_take_too_long_are_said():
    found, asked = fit(lambda scale: 60 * 24 / (5.0 * scale + 30.0), 222.0)
    assert not found.reached
    assert found.scale == min(asked) == LEAST


def test_a_cliff_between_two_scales_ends():
    found, asked = fit(lambda scale: 100.0 if scale < 1.3 else 20.0, 60.0)
    assert not found.reached
    assert len(asked) <= TRIES
    assert all(LEAST <= s <= MOST for s in asked)


def test_programs_that_ran_out_mean_that_steps_are_too_fast():
    def rate(scale):
        return math.inf if scale < 3.0 else 60 * 24 / (5.0 * scale)

    found, asked = fit(rate, 60.0)
    assert found.reached
    assert asked[1] > asked[0]


def test_no_step_at_all_means_that_they_are_too_slow():
    found, asked = fit(lambda scale: 0.0 if scale > 0.5 else 60 * 24 / (5.0 * scale), 900.0)
    assert found.reached
    assert asked[1] < asked[0]


@pytest.mark.parametrize(
    ("got", "words"),
    [(0.0, "0 steps/min for 83.4 after 8 tries: NOT REACHED"), (math.inf, "no full window .*: NOT REACHED"),
     (83.0, "83 steps/min for 83.4 after 8 tries")],
)  # fmt: skip
def test_what_was_not_reached_is_said(got, words):
    assert re.fullmatch(words, str(Fitted(1.0, got, 83.4, 8)))


def test_the_same_answers_make_the_same_search():
    assert fit(lambda s: 100 / s, 70.0) == fit(lambda s: 100 / s, 70.0)


def test_one_factor_on_all_parts_is_the_whole_step():
    assert set(knobs(1.25).values()) == {"1.25"}
    assert set(knobs(1.25)) == {"latency.prefill", "latency.decode", "latency.overhead"}

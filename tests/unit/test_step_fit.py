"""Fits of recorded step times (benchmarks/step_fit.py), which need no GPU and no PyTorch."""

from random import Random
from typing import NamedTuple

import numpy as np
import pytest
from scipy.optimize import nnls

from benchmarks.step_fit import Fitted, coefficients, nonnegative, separated
from systems.latency.calibration import LinearLatency
from vocabulary import on_grid


class Recorded(NamedTuple):
    prefills: tuple[tuple[int, int], ...]
    n_decode: int
    sum_ctx: int
    seconds: float


def steps(latency, count=200, seed=3):
    draw, made = Random(seed), []
    for _ in range(count):
        prefills = tuple(
            (draw.randint(1, 500), draw.randint(0, 900)) for _ in range(draw.choice((0, 0, 1, 2)))
        )
        n = draw.randint(0 if prefills else 1, 40)
        context = n * draw.randint(1, 2000)
        made.append(Recorded(prefills, n, context, latency.step(prefills, n, context)))
    return made


LINEAR = LinearLatency("true", {"step": 5.0, "token": 0.02, "row": 0.1, "context": 1e-4, "pair": 2e-5})


def test_a_linear_engine_is_found_again():
    found = LinearLatency("found", coefficients(steps(LINEAR)))
    for step in steps(LINEAR, seed=4):
        assert found.step(*step[:3]) == pytest.approx(step.seconds, rel=1e-6)


def test_two_kinds_of_steps_are_told_apart():
    class Twofold:
        def step(self, prefills, n_decode, sum_ctx):
            extra = 0.004 + 0.001 * len(prefills) if prefills else 0.0
            return on_grid(extra + LINEAR.step(prefills, n_decode, sum_ctx))

    fitted = Fitted("fitted", steps(Twofold()))
    for step in steps(Twofold(), seed=4):
        assert fitted.step(*step[:3]) == pytest.approx(step.seconds, rel=1e-6)


def test_decode_steps_lie_on_their_line_to_the_last_bit():
    fitted = Fitted("fitted", steps(LINEAR))
    for n in (1, 7, 33):
        a, b, limit = fitted.decode_line(n, 10 * n)
        assert all(on_grid(a + b * c) == fitted.step((), n, c) for c in range(10 * n, 10_000, 97))
        assert limit > 10_000


def test_nonnegative_is_what_scipy_finds():
    draw = np.random.default_rng(5)
    for _ in range(20):
        rows, target = draw.normal(size=(30, 4)), draw.uniform(0.5, 2.0, 30)
        expected = nnls(rows * (target**-0.5)[:, None], target**0.5)[0]
        assert nonnegative(rows, target) == pytest.approx(expected, abs=1e-9)


def test_nothing_to_fit_is_an_error_that_says_so():
    with pytest.raises(ValueError, match="needs prefills and pure decode steps"):
        Fitted("fitted", [step for step in steps(LINEAR) if step.prefills])


def test_means_separate_only_where_the_programs_agree():
    quiet = np.linspace(1.0, 9.0, 30)
    assert separated(quiet, quiet + 0.5) == -1
    assert separated(quiet + 0.5, quiet) == 1
    assert separated(quiet, quiet[::-1]) == 0

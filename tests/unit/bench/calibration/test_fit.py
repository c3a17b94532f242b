"""The fit itself, on a simulator that is a formula."""

import numpy as np
import pytest

from bench.calibration.fit import first_part, fit, fitted_columns, folds
from bench.errors import InvalidRun

STEPS = np.array([[20.0, 0.9], [5.0, 1.2], [40.0, 0.4], [9.0, 2.0], [14.0, 1.0], [30.0, 0.7]])
"""(steps until the first token, ms of a step) of some rows."""


def simulate(scale, extra_ms, rows):
    step = (STEPS[rows, 1] * scale + extra_ms) / 1e3
    return np.stack([STEPS[rows, 0] * step, step, np.full(len(rows), np.nan)], axis=1)


EVERY = np.arange(len(STEPS))


def test_the_truth_is_found():
    found = fit(simulate, simulate(1.3, 0.4, EVERY), EVERY, None)
    assert (found.scale, found.extra_ms) == pytest.approx((1.3, 0.4), abs=0.01)
    assert found.loss < 1e-5


def test_ms_per_step_are_never_negative():
    assert fit(simulate, simulate(1.0, 0.0, EVERY) * 0.8, EVERY, None).extra_ms >= 0.0


def test_one_wild_row_does_not_decide():
    measured = simulate(1.3, 0.4, EVERY)
    measured[0, 0] *= 30
    found = fit(simulate, measured, EVERY, None)
    assert simulate(found.scale, found.extra_ms, EVERY)[1:, 1] == pytest.approx(measured[1:, 1], rel=0.05)


def test_missing_times_are_left_out_and_e2e_stands_in():
    measured = simulate(1.3, 0.4, EVERY)
    measured[2:, 0] = np.nan
    assert fit(simulate, measured, EVERY, None).scale == pytest.approx(1.3, abs=0.01)
    assert fitted_columns(np.array([[np.nan, 1.0, 2.0]])) == [1]
    assert fitted_columns(np.array([[np.nan, np.nan, 2.0]])) == [2]
    with pytest.raises(InvalidRun, match="neither"):
        fitted_columns(np.full((3, 3), np.nan))


def test_folds_hold_out_every_row_once_by_its_number():
    parts = folds([0, 2, 3, 5, 7])
    assert [held.tolist() for _, held in parts] == [[0, 3], [7], [2, 5]]
    assert all(set(fitted) | set(held) == {0, 2, 3, 5, 7} for fitted, held in parts)


def test_the_first_part():
    fitted, held = first_part(5, 0.4)
    assert (fitted.tolist(), held.tolist()) == ([0, 1], [2, 3, 4])


def test_progress_is_told_and_ends():
    seen = []
    fit(simulate, simulate(1.3, 0.4, EVERY), EVERY, lambda done, total: seen.append((done, total)))
    assert seen[-1][0] == seen[-1][1]

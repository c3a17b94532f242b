import math

import pytest

from bench.curves.crossing import FURTHEST, INF, LEAST_SLOPE, crossing, next_rate, rate_of_seed, ratio


def test_between_two_rates_it_is_interpolated_in_logarithms():
    found = crossing({1.0: 0.1, 2.0: 0.4, 4.0: 9.0}, 0.2)
    assert found.rate == pytest.approx(math.sqrt(2))  # halfway in logarithms
    assert (found.low, found.high) == (1.0, 2.0)
    assert found.closed


def test_the_slope_is_a_regression_on_the_flat_side():
    exact = {r: 0.1 * r**4 for r in (0.8, 0.9, 1.0, 1.15, 1.3)}
    assert crossing(exact, 0.12).slope == pytest.approx(4.0)
    noisy = {r: v * (1.2 if i % 2 else 0.85) for i, (r, v) in enumerate(exact.items())}
    assert crossing(noisy, 0.12).slope < 4.0
    assert crossing({1.0: 0.1, 1.02: 0.2}, 0.15).slope == pytest.approx(math.log(2) / math.log(1.02))


def test_a_curve_never_crossed_leaves_an_open_end():
    assert crossing({1.0: 0.1, 2.0: 0.15}, 0.2)[:3] == (2.0, 2.0, INF)
    assert crossing({1.0: 0.5, 2.0: 0.9}, 0.2)[:3] == (1.0, 0.0, 1.0)
    assert not crossing({1.0: 0.1}, 0.2).closed
    with pytest.raises(ValueError, match="no crossing"):
        crossing({1.0: math.nan}, 0.2)


def test_a_curve_that_dips_again_crosses_at_its_last_step_up():
    found = crossing({1.0: 0.1, 1.1: 0.3, 1.2: 0.15, 1.3: 0.6}, 0.2)
    assert (found.low, found.high) == (1.2, 1.3)


def test_a_flat_bracket_has_a_least_slope():
    found = crossing({1.0: 0.19, 8.0: 0.21}, 0.2)
    assert found.slope == LEAST_SLOPE


def test_brackets_are_halved_until_they_are_narrow():
    assert next_rate(crossing({1.0: 0.1, 2.0: 0.4}, 0.2), 1.1, 0.1, 9.0) == pytest.approx(math.sqrt(2))
    assert next_rate(crossing({1.0: 0.1, 1.05: 0.4}, 0.2), 1.1, 0.1, 9.0) is None
    assert next_rate(crossing({1.0: 0.4}, 0.2), 1.1, 0.1, 9.0) == 0.5


def test_below_the_swept_rates_it_goes_on_to_the_least():
    assert next_rate(crossing({1.0: 0.4}, 0.2), 1.1, 0.8, 9.0) == 0.8
    assert next_rate(crossing({1.0: 0.4}, 0.2), 1.1, 1.0, 9.0) is None


def test_beyond_the_swept_rates_it_goes_on_to_the_most():
    assert next_rate(crossing({1.0: 0.1}, 0.2), 1.1, 0.1, 9.0) == 1.5
    assert next_rate(crossing({1.0: 0.1}, 0.2), 1.1, 0.1, 1.2) == 1.2
    assert next_rate(crossing({1.0: 0.1}, 0.2), 1.1, 0.1, 1.0) is None


def test_a_seed_s_rate_follows_the_slope():
    found = crossing({1.0: 0.1, 2.0: 0.4}, 0.2)
    assert rate_of_seed(0.2, found.rate, 0.2, found) == pytest.approx(found.rate)
    assert rate_of_seed(0.21, 2.0, 0.2, found) == pytest.approx(2.0 * (0.2 / 0.21) ** (1 / found.slope))
    assert rate_of_seed(1e9, 2.0, 0.2, found) == pytest.approx(2.0 / FURTHEST)  # a bound, no extrapolation
    assert math.isnan(rate_of_seed(math.nan, 2.0, 0.2, found))


def test_paired_ratio():
    found = ratio({1: 2.0, 2: 4.0, 3: 9.0}, {1: 1.0, 2: 2.0, 4: 1.0})
    assert found.value == pytest.approx(2.0)
    assert found.low == pytest.approx(2.0)  # both seeds say the same
    wide = ratio({1: 2.0, 2: 8.0}, {1: 1.0, 2: 1.0})
    assert wide.value == pytest.approx(4.0)
    assert wide.low < 1.0 < wide.high


def test_a_seed_without_a_value_is_not_left_out():
    found = ratio({1: 2.0, 2: math.nan, 3: 2.0}, {1: 1.0, 2: 1.0, 3: 1.0})
    assert math.isnan(found.value)
    assert "seed 2" in found.note

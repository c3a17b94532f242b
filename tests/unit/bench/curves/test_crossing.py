import math

import pytest

from bench.curves.crossing import INF, LEAST_SLOPE, crossing, next_rate, rate_of_seed, ratio


def test_between_two_rates_it_is_interpolated_in_logarithms():
    found = crossing({1.0: 0.1, 2.0: 0.4, 4.0: 9.0}, 0.2)
    assert found.rate == pytest.approx(math.sqrt(2))  # halfway in logarithms
    assert (found.low, found.high) == (1.0, 2.0)
    assert found.slope == pytest.approx(2.0)
    assert found.closed


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
    assert next_rate(crossing({1.0: 0.1, 2.0: 0.4}, 0.2), 1.1, 9.0) == pytest.approx(math.sqrt(2))
    assert next_rate(crossing({1.0: 0.1, 1.05: 0.4}, 0.2), 1.1, 9.0) is None
    assert next_rate(crossing({1.0: 0.4}, 0.2), 1.1, 9.0) == 0.5


def test_beyond_the_swept_rates_it_goes_on_to_the_most():
    assert next_rate(crossing({1.0: 0.1}, 0.2), 1.1, 9.0) == 1.5
    assert next_rate(crossing({1.0: 0.1}, 0.2), 1.1, 1.2) == 1.2
    assert next_rate(crossing({1.0: 0.1}, 0.2), 1.1, 1.0) is None


def test_a_seed_s_rate_follows_the_slope():
    found = crossing({1.0: 0.1, 2.0: 0.4}, 0.2)
    assert rate_of_seed(0.2, found.rate, 0.2, found) == pytest.approx(found.rate)
    assert rate_of_seed(0.4, 2.0, 0.2, found) == pytest.approx(found.rate)
    assert math.isnan(rate_of_seed(math.nan, 2.0, 0.2, found))


def test_paired_ratio():
    found = ratio({1: 2.0, 2: 4.0, 3: 9.0}, {1: 1.0, 2: 2.0, 4: 1.0})
    assert found.value == pytest.approx(2.0)
    assert found.low == pytest.approx(2.0)  # both seeds say the same
    wide = ratio({1: 2.0, 2: 8.0}, {1: 1.0, 2: 1.0})
    assert wide.value == pytest.approx(4.0)
    assert wide.low < 1.0 < wide.high

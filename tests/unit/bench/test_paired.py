import math

import numpy as np
import pytest
from scipy import stats as reference

from bench.paired import (
    ALPHA,
    BOOTSTRAP_FROM,
    MOST_NEEDED,
    POWER,
    Contrast,
    holm,
    paired,
    sign_test,
    welch,
)

STEPS = [0.11, 0.02, 0.17, 0.05, -0.01, 0.09, 0.12, 0.08]


def test_a_paired_interval_and_its_p_are_scipys():
    got, known = paired(STEPS), reference.ttest_1samp(STEPS, 0)
    assert got.p() == pytest.approx(known.pvalue)
    assert got.interval() == pytest.approx(tuple(known.confidence_interval(0.95)))
    assert got.interval(0.05 / 3) == pytest.approx(tuple(known.confidence_interval(1 - 0.05 / 3)))


def test_welch_is_scipys():
    a, b = [1.0, 2.0, 1.5, 1.2, 0.7], [2.2, 3.9, 1.0, 4.4, 2.5, 3.0, 9.0]
    got, known = welch(a, b), reference.ttest_ind(b, a, equal_var=False)
    assert (got.p(), got.df()) == pytest.approx((known.pvalue, known.df))
    assert got.interval() == pytest.approx(tuple(known.confidence_interval(0.95)))


def test_one_seed_has_no_interval():
    with pytest.raises(ValueError, match="at least 2 seeds, got 1"):
        paired([0.1])
    with pytest.raises(ValueError, match="at least 2"):
        welch([0.1, 0.2], [0.3])


def test_equal_seeds_are_certain_and_identical_ones_show_nothing():
    same = paired([math.log(1.1 * x / x) for x in (0.3, 0.7, 1.9, 2.3)])
    assert (same.p(), same.error(), same.seeds_for(0.05)) == (0.0, 0.0, 2)
    assert same.interval() == (same.mean, same.mean)
    nothing = paired([0.0] * 8)
    assert (nothing.p(), nothing.interval(), nothing.detectable()) == (1.0, (0.0, 0.0), 0.0)


@pytest.mark.parametrize("steps", [STEPS, STEPS[:5], [1, -1, 1], [0, 0, 2], [0.0, 0.0], [-1] * 8])
def test_the_sign_test_is_the_binomial_one(steps):
    up, down = sum(s > 0 for s in steps), sum(s < 0 for s in steps)
    known = reference.binomtest(up, up + down).pvalue if up + down else 1.0
    assert sign_test(steps) == pytest.approx(known)


def test_three_seeds_cannot_reach_a_low_sign_test():
    assert sign_test([1, 1, 1]) == 0.25


def test_holm_steps_down_and_stops():
    rejected, shares = zip(*holm([0.04, 0.001, 0.03, 0.02]), strict=True)
    assert rejected == (False, True, False, False)
    assert shares == pytest.approx((0.05 / 3, 0.05 / 4, 0.05 / 3, 0.05 / 3))
    assert holm([0.001, 0.02, 0.04]) == [(True, ALPHA / 3), (True, ALPHA / 2), (True, ALPHA)]
    assert holm([]) == []


def test_holms_intervals_agree_with_its_test():
    """An interval at the share it takes excludes 0 exactly where the step-down rejects."""
    rng = np.random.default_rng(3)
    for _ in range(200):
        contrasts = [paired(rng.normal(rng.choice([0, 0.8]), 1, 8)) for _ in range(3)]
        for contrast, (rejected, share) in zip(contrasts, holm([c.p() for c in contrasts]), strict=True):
            low, high = contrast.interval(share)
            assert (low > 0 or high < 0) == rejected


@pytest.mark.parametrize(("sizes", "spreads"), [((8,), (0.1,)), ((8, 8), (0.1, 0.06)), ((30,), (0.2,))])
def test_the_detectable_effect_has_the_power_it_says(sizes, spreads):
    """Against the noncentral t distribution (df of equal spreads differ from Welch's by little)."""
    contrast = Contrast(0.0, spreads, sizes)
    shift = contrast.detectable() / contrast.error()
    df = contrast.df()
    limit = reference.t.ppf(1 - ALPHA / 2, df)
    power = reference.nct.sf(limit, df, shift) + reference.nct.cdf(-limit, df, shift)
    assert power == pytest.approx(POWER, abs=0.02)


def test_seeds_needed_is_the_first_number_that_does():
    contrast = paired(STEPS)
    for effect in (0.02, 0.05, 0.1):
        n = contrast.seeds_for(effect)
        assert contrast.detectable(seeds=n) <= effect < contrast.detectable(seeds=n - 1)
    assert contrast.seeds_for(10.0, least=8) == 8
    assert contrast.seeds_for(0.0) is None
    assert contrast.seeds_for(1e-6) is None
    assert contrast.detectable(seeds=MOST_NEEDED) > 1e-6


def test_seeds_needed_keep_the_power_promised():
    """Drawn again with so many seeds, the effect is found in 80 % of the cases."""
    rng = np.random.default_rng(11)
    n = Contrast(0.0, (0.1,), (8,)).seeds_for(0.05)
    draws = rng.normal(0.05, 0.1, (1000, n))
    t = draws.mean(axis=1) / (draws.std(axis=1, ddof=1) / math.sqrt(n))
    found = (abs(t) > reference.t.ppf(0.975, n - 1)).mean()
    assert 0.76 <= found <= 0.84


def test_the_bootstrap_starts_where_it_covers():
    rng = np.random.default_rng(5)
    assert paired(rng.normal(size=BOOTSTRAP_FROM - 1)).draws is None
    data = rng.normal(size=BOOTSTRAP_FROM)
    got = paired(data)
    assert got.draws is not None
    assert got.interval() == paired(data).interval()
    assert got.interval() == pytest.approx(Contrast(got.mean, got.spreads, got.sizes).interval(), abs=0.15)


def test_the_bootstrap_covers_skewed_effects():
    rng = np.random.default_rng(6)
    inside = 0
    for _ in range(120):
        low, high = paired(rng.exponential(size=24) - 1.0).interval()
        inside += low <= 0 <= high
    assert inside >= 106  # 95 % would be 114


def test_a_resample_that_can_be_constant_falls_back_on_t():
    few = [0.0] * (BOOTSTRAP_FROM - 1) + [1.0]
    assert paired(few).draws is None

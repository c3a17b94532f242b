import math

import numpy as np
import pytest

from bench.errors import UsageError
from bench.paired import ALPHA
from bench.verdicts import (
    DIFFERENCE,
    GATES,
    RATIO,
    SHOWN,
    Question,
    better,
    effect_of,
    judge,
    overall,
)
from tests.unit.bench.result_groups import LATENCY, RATE, TOKENS


def entries(values, first=1):
    return {first + i: {"value": v, "note": ""} for i, v in enumerate(values)}


def effects(ratio, spread=0.01, seeds=8, name=LATENCY, base=0.04, rng=None):
    rng = rng or np.random.default_rng(1)
    a = base * np.exp(rng.normal(0, 0.3, seeds))
    b = a * ratio * np.exp(rng.normal(0, spread, seeds))
    return effect_of(name, entries(a.tolist()), entries(b.tolist()), True)


def verdict_of(effect, **question):
    asked = Question(**({"gates": (effect.name,)} | question))
    return judge([effect], asked)[0]["verdict"]


def test_every_gate_and_page_metric_has_a_direction_where_it_needs_one():
    assert [better(g) for g in GATES] == [-1, -1, 1]
    assert better("preemptions.per_call") == better("transient.finished_only") == 0
    assert better("transient.mean_of_ratios") == better("chat.transient.ratio_of_means") == -1
    assert better("transient.finished_share") == 1
    assert better("kv.hit_rate") == better("system.finished_share") == 1
    assert better("wait.wait_share") == better("call.ttft.p99") == better("throughput.window_s") == -1
    assert len(set(SHOWN)) == len(SHOWN)


@pytest.mark.parametrize(
    ("ratio", "spread", "name", "says"),
    [
        (1.10, 0.01, LATENCY, "worse"), (0.90, 0.01, LATENCY, "better"),
        (1.10, 0.01, RATE, "better"), (0.90, 0.01, RATE, "worse"),
        (1.10, 0.01, "littles_law.product", "higher"), (0.90, 0.01, "throughput.arrivals_per_s", "lower"),
        (1.02, 0.002, LATENCY, "~"),  # certain, and too small to matter
        (1.00, 0.01, LATENCY, "~"), (1.00, 0.20, LATENCY, "inconclusive"),
    ],
)  # fmt: skip
def test_a_verdict_needs_certainty_and_size(ratio, spread, name, says):
    effect = effects(ratio, spread, name=name)
    asked = Question((LATENCY,))
    (row,) = judge([effect], asked)
    assert row["verdict"] == says
    assert row["gated"] == (name == LATENCY)


def test_few_seeds_are_exploratory_whatever_they_show():
    assert verdict_of(effects(3.0, seeds=7)) == "exploratory"
    assert verdict_of(effects(3.0, seeds=8)) == "worse"
    one = effects(3.0, seeds=1)
    assert (one.why, verdict_of(one)) == ("one seed, no interval", "exploratory")


def test_four_gates_want_ten_seeds():
    many = (*GATES, "call.ttft.mean")
    assert verdict_of(effects(3.0, seeds=9), gates=many) == "exploratory"
    assert verdict_of(effects(3.0, seeds=10), gates=many) == "worse"


def test_a_threshold_inside_the_noise_is_refused_with_the_seeds_it_would_need():
    effect = effects(1.0, 0.2)
    (row,) = judge([effect], Question((LATENCY,), threshold=0.05))
    assert row["verdict"] == "inconclusive"
    assert row["detectable"] > 1.05
    sd = effect.contrast.spreads[0]
    assert row["seeds_needed"] == pytest.approx((2.8 * sd / math.log(1.05)) ** 2, rel=0.1)
    assert verdict_of(effect, threshold=0.9) == "~"


def test_threshold_0_leaves_the_decision_to_the_test():
    assert verdict_of(effects(1.0, 0.2), threshold=0.0) == "~"
    assert verdict_of(effects(1.01, 0.001), threshold=0.0) == "worse"


def test_what_may_be_zero_is_compared_by_difference():
    base, new = entries([0.0, 0.1, 0.0, 0.2, 0.1, 0.0, 0.1, 0.2]), entries([0.3] * 8)
    effect = effect_of("wait.wait_share", base, new, True)
    assert effect.scale == DIFFERENCE
    assert effect.contrast.mean == pytest.approx(0.3 - 0.0875)
    assert effect.bar(0.05) == 0.05  # points
    assert effect_of("wait.wait_s", base, new, True).bar(0.05) == pytest.approx(0.05 * 0.0875)
    assert effect_of(LATENCY, entries([0.0, 1.0]), entries([1.0, 1.0]), True).scale == DIFFERENCE
    assert effects(1.1).scale == RATIO


def test_the_effect_is_the_geometric_mean_of_the_seeds_ratios():
    effect = effect_of(LATENCY, entries([1.0, 2.0]), entries([2.0, 16.0]), True)
    (row,) = judge([effect], Question())
    assert row["effect"] == pytest.approx(4.0)
    assert (row["base"]["value"], row["new"]["value"]) == (1.5, 9.0)


def test_a_number_that_a_seed_lacks_is_named_and_decides_nothing():
    effect = effect_of("program.response.p95", entries([1.0, 2.0]), entries([1.0, None]), True)
    (row,) = judge([effect], Question(("program.response.p95",)))
    assert row["verdict"] == "inconclusive"
    assert row["why"] == "program.response.p95 is not there in NEW, seed 2: no such number"
    assert row["base"]["value"] == 1.5


def test_a_missing_gate_still_counts_in_holms_correction():
    missing = effect_of(TOKENS, entries([None] * 8), entries([1.0] * 8), True)
    rows = judge([effects(1.1), missing], Question((LATENCY, TOKENS)))
    assert rows[0]["level"] == pytest.approx(1 - ALPHA / 2)
    assert overall(rows) == "worse"


def test_the_worst_gate_is_the_outcome():
    def outcome(*verdicts):
        return overall(
            [{"gated": True, "verdict": v} for v in verdicts] + [{"gated": False, "verdict": "worse"}]
        )

    assert outcome("~", "better") == "no worse"
    assert outcome("~", "worse", "inconclusive") == "worse"
    assert outcome("better", "inconclusive") == "inconclusive"
    assert outcome("exploratory", "exploratory") == "exploratory"


@pytest.mark.parametrize("threshold", [-0.1, 1.0, math.nan, math.inf])
def test_a_threshold_is_a_share(threshold):
    with pytest.raises(UsageError, match=r"0\.05 is 5 %"):
        Question(threshold=threshold).check()


def test_a_gate_needs_a_better_direction():
    with pytest.raises(UsageError, match="neither more nor less"):
        Question(("preemptions.total",)).check()


@pytest.mark.parametrize(("in_pairs", "seeds"), [(True, 8), (True, 20), (False, 8), (False, 20)])
def test_a_a_comparisons_rarely_raise_an_alarm(in_pairs, seeds):
    """Rule 10 on lognormal seeds: at most 16 of 200 at threshold 0, all gates together."""
    rng = np.random.default_rng(seeds)
    alarms = 0
    for _ in range(200):
        common = rng.normal(0, 0.3 if in_pairs else 0.0, seeds)
        found = []
        for name in GATES:
            a, b = (np.exp(common + rng.normal(0, 0.3, seeds)).tolist() for _ in range(2))
            found.append(effect_of(name, entries(a), entries(b), in_pairs))
        rows = judge(found, Question(threshold=0.0))
        alarms += any(r["verdict"] in ("worse", "better") for r in rows)
    assert alarms <= 16

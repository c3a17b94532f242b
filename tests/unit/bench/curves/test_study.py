import math
from dataclasses import replace

import pytest

from bench.curves.judge import bracket, judge
from bench.curves.spec import Claim, Variation
from tests.unit.bench.curves.planted import Formula, complete, queueing, steep, study

CAPACITY = {"base": 0.2, "opt": 1.0, "new": 1.5, "bound": 1.6, "new/other": 1.5}


def formula(noise=0.0, capacity=CAPACITY):
    return Formula(steep(capacity, noise), lambda system, rate: rate < 0.9 * capacity[system])


def claim(expected, **given):
    plain = {"better": "new", "base": "opt", "expected": expected}
    return Claim("c", "paper", "new is faster", ("chat",), **plain | given)


def test_every_system_at_every_rate_and_the_slow_one_at_its_own():
    run = formula()
    study(run).scan()
    rates = {s: sorted(c.rate for c in run.asked if c.system == s) for s in ("base", "opt", "new")}
    assert rates["opt"] == rates["new"] == [0.5, 0.8, 1.0, 1.4, 2.0]
    assert rates["base"] == [0.125, 0.2, 0.25, 0.35, 0.5]
    assert {c.horizon for c in run.asked} == {100.0}


def test_another_gpu_may_have_its_own_saturation():
    made = study(formula())
    load = replace(made.loads()[0], saturation={"m": 1.0, "m/h100": 3.0})
    assert made.saturation(load) == 1.0
    assert replace(made, gpu="h100").saturation(load) == 3.0


def test_what_is_not_stated_is_bisected():
    made = replace(study(formula()), gpu="h200")
    made.calibrate()
    assert made.saturation(made.loads()[0]) == pytest.approx(0.9, rel=0.06)


def test_brackets_are_narrowed_and_no_cell_is_asked_twice():
    run = formula()
    made = complete(run)
    load = made.loads()[0]
    for system, capacity in (("base", 0.2), ("opt", 1.0), ("new", 1.5)):
        found = made.crossings(load, system)[made.deciding(load)]
        capacity *= (made.deciding(load) / 0.3) ** (1 / 9.006)
        assert found.high / found.low <= 1.1 + 1e-9
        assert found.rate == pytest.approx(capacity, rel=0.01)
    words = [" ".join(c.words()) for c in run.asked]
    assert len(words) == len(set(words))


@pytest.mark.parametrize(
    ("expected", "word"), [(1.5, "reproduced"), (1.8, "reproduced"), (2.2, "partly"), (6.0, "not reproduced")]
)
def test_a_planted_ratio_is_found(expected, word):
    made = complete(formula(noise=0.05), claims=[claim(expected)])
    (row,) = judge(made)
    assert row["got"] == pytest.approx(1.5, rel=0.05)
    assert row["low"] < row["got"] < row["high"]
    assert row["seeds"] == 8
    assert row["transient"] == word


def test_equal_systems_do_not_reproduce_a_gain():
    capacity = {**CAPACITY, "new": 1.0, "new/other": 1.0}
    (row,) = judge(complete(formula(noise=0.1, capacity=capacity), claims=[claim(1.5)]))
    assert row["transient"] == "not reproduced"
    assert row["low"] < 1.0 < row["high"]


def test_a_curve_that_is_never_crossed_gives_a_bound():
    capacity = {**CAPACITY, "new": 5.0, "new/other": 5.0}
    (row,) = judge(complete(formula(capacity=capacity), claims=[claim(1.5)]))
    assert row["high"] == math.inf
    assert row["got"] == pytest.approx(2.0, rel=0.1)  # at least 2 programs/s, the largest rate run
    assert row["transient"].startswith("exploratory")


def test_levels_relative_to_an_idle_reference_are_compared_too():
    made = complete(formula(capacity={**CAPACITY, "new": 5.0, "new/other": 5.0}))
    made.curves = replace(made.curves, levels=(4.0,))
    load = made.loads()[0]
    idle = made.curve(load, "opt", made.curves.metric)[0.5]
    assert made.levels(load) == [pytest.approx(4 * idle, rel=1e-3), 0.2, 0.3]


def test_a_slow_system_above_the_level_everywhere_gives_a_lower_bound():
    capacity = {**CAPACITY, "base": 1e-4}
    (row,) = judge(complete(formula(capacity=capacity), claims=[claim(8.0, base="base")]))
    assert row["high"] == math.inf
    assert row["low"] > 3.0  # the base crosses below its lowest rate, .3 programs/s at the fewest
    (row,) = judge(complete(formula(capacity=capacity), claims=[claim(0.1, base="base")]))
    assert row["transient"].endswith("not reproduced")


def test_the_deciding_rate_does_not_move_with_the_deciding_runs():
    claims = [claim(1.0, kind="faster", better="bound", base="new")]
    for noise in (0.02, 0.1):
        made = study(Formula(queueing(CAPACITY, noise), lambda *_: True), claims=claims)
        made.scan()
        made.narrow()
        before = made.deciding_rate(made.loads()[0])
        made.decide()
        assert made.deciding_rate(made.loads()[0]) == before
        (row,) = judge(made)
        assert row["seeds"] == 8


def test_intervals_cover_the_planted_ratio_on_a_rough_convex_curve():
    covered = 0
    for i in range(60):
        run = Formula(queueing({**CAPACITY, "new": 1.3, "opt": 1.0}, 0.1), lambda *_: True)
        (row,) = judge(complete(run, workload=f"w{i}", claims=[claim(1.3)]))
        covered += row["low"] <= 1.3 <= row["high"]
    assert covered >= 51  # 85 %: the scan's one curve sets slope and rate


def test_a_range_must_hold_in_each_workload():
    ranged = claim(1.2, expected_high=2.0)
    assert not ranged.everywhere  # one workload
    assert replace(ranged, workloads=("chat", "other")).everywhere


def test_few_seeds_give_no_verdict():
    (row,) = judge(complete(formula(), claims=[claim(1.5)], seeds=3))
    assert row["transient"] == "exploratory: reproduced"


def test_a_sustained_rate_is_a_bracket():
    made = complete(formula())
    found = bracket(made, made.loads()[0], "opt")
    assert found.low < 0.9 <= found.high
    ((row),) = judge(complete(formula(), claims=[claim(0.9, better="opt", kind="sustains")]))
    assert row["sustained"].removeprefix("exploratory: ") == "reproduced"
    assert row["transient"] == "not testable here"


def test_a_claim_of_a_sign_compares_at_the_subject_s_rate():
    claims = [
        claim(1.0, kind="faster", better="bound", base="new"),
        claim(1.0, kind="faster", base="new/other"),
    ]
    first, second = judge(complete(formula(noise=0.01), claims=claims))
    assert first["transient"] == "reproduced"
    assert second["transient"] == "not reproduced"


def test_what_a_scale_does_not_run_is_not_testable():
    (row,) = judge(complete(formula(), claims=[claim(2.0, base="nobody")]))
    assert (row["transient"], row["sustained"]) == ("not testable here", "not testable here")


def test_variations_run_beside_at_their_own_horizon():
    run = formula()
    variations = [
        Variation("default", "default", ("new",), {}, default=True),
        Variation("beta", "2", ("new",), {"scheduler.beta": "2"}),
    ]
    made = complete(
        run, sensitivity=variations, sensitivity_horizon=30.0, sensitivity_seeds=2, horizons=(10.0, 20.0)
    )
    before = len(made.points)
    found = made.sensitivity()
    assert [v.value for v, _ in found] == ["default", "default", "2", "2"]
    assert {p.horizon for _, p in found} == {30.0}
    assert run.asked[-1].knobs["scheduler.beta"] == "2"
    assert {p.horizon for p in made.horizons()} == {10.0, 20.0}
    assert len(made.points) == before

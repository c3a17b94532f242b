"""Exact McNemar and Wilson: against scipy, by hand, and at the ends."""

import math

import pytest
from scipy.stats import binomtest

from bench.agents.mcnemar import MCNEMAR, OVER_TASKS, SIGN_TEST, exact_p, mcnemar, solved, tasks_of, wilson
from workloads.agents import catalog


@pytest.mark.parametrize(("b", "c"), [(0, 1), (1, 5), (3, 3), (10, 2), (40, 25), (0, 12), (300, 250)])
def test_exact_p_is_the_binomial_tests(b, c):
    assert exact_p(b, c) == pytest.approx(binomtest(b, b + c, 0.5).pvalue, rel=1e-9)


def test_by_hand():
    assert exact_p(0, 0) == 1.0
    assert exact_p(0, 5) == 2 / 32
    assert exact_p(1, 5) == 2 * (1 + 6) / 64


def test_pairs_are_what_both_sides_have():
    base = {(1, "a"): True, (1, "b"): True, (1, "c"): False, (2, "a"): False, (9, "x"): True}
    new = {(1, "a"): True, (1, "b"): False, (1, "c"): True, (2, "a"): False}
    found = mcnemar(base, new)
    assert (found.both, found.neither, found.base_only, found.new_only, found.alone) == (
        1, 1, ((1, "b"),), ((1, "c"),), 1,
    )  # fmt: skip
    plain = found.as_json()
    assert (plain["pairs"], plain["base"], plain["new"], plain["p"]) == (4, 2, 2, 1.0)
    assert plain["base_only"] == [[1, "b"]]
    assert (plain["base_tasks"], plain["new_tasks"], plain["tasks"]) == (["b"], ["c"], 3)
    assert found.method == SIGN_TEST  # "a" came out in two ways


def lost(seeds, tasks=24, losing=3):
    """Outcomes of ``tasks`` under each of ``seeds``; the first ``losing`` are not solved."""
    return {(seed, f"t{i}"): i >= losing for seed in range(seeds) for i in range(tasks)}


@pytest.mark.parametrize("seeds", [1, 5, 10])
def test_a_repeat_of_a_task_is_no_evidence(seeds):
    found = mcnemar(lost(seeds, losing=0), lost(seeds))
    assert (found.pairs, found.tasks, len(found.base_only)) == (24 * seeds, 24, 3 * seeds)
    assert found.p == 0.25
    assert found.method == (MCNEMAR if seeds == 1 else OVER_TASKS)
    share, once = solved((name, ok) for (_, name), ok in lost(seeds).items()), wilson(21, 24)
    assert (share["x"], share["n"], share["tasks"]) == (21 * seeds, 24 * seeds, 24)
    assert (share["value"], share["low"], share["high"]) == once[:3]


def test_where_repeats_differ_tasks_count_by_the_sign_of_their_mean():
    base = {(seed, task): True for seed in (1, 2, 3) for task in "abcd"}
    new = {key: key not in {(1, "a"), (2, "a"), (3, "a"), (1, "b"), (2, "c")} for key in base}
    found = mcnemar(base, new)
    assert (found.method, found.base_tasks, found.new_tasks) == (SIGN_TEST, ("a", "b", "c"), ())
    assert found.p == 0.25
    mixed = {**base, (2, "a"): False, (3, "a"): True}
    assert mcnemar(mixed, {**base, (1, "a"): False}).base_tasks == ()  # one lost, one won
    share = solved((task, ok) for (_, task), ok in new.items())
    assert share["value"] == pytest.approx((0 + 2 / 3 + 2 / 3 + 1) / 4)
    assert share["low"] == pytest.approx(wilson(7 / 3, 4).low)


def test_laps_are_repeats():
    names = ["lru", "lru.2", "lru.13", "game24-1-1-8-8", "game24-1-1-8-8-again1", "release-1.2", "x.y"]
    assert tasks_of(names) == {
        "lru": "lru", "lru.2": "lru", "lru.13": "lru", "game24-1-1-8-8": "game24-1-1-8-8",
        "game24-1-1-8-8-again1": "game24-1-1-8-8", "release-1.2": "release-1.2", "x.y": "x.y",
    }  # fmt: skip
    found = mcnemar({(1, "lru"): True, (1, "lru.2"): True}, {(1, "lru"): False, (1, "lru.2"): False})
    assert (found.tasks, found.pairs, found.p, found.base_tasks) == (1, 2, 1.0, ("lru",))


def test_laps_of_a_suite_are_known():
    names = [task.name for task in catalog.suite("repair").tasks(50, 1, None)]
    tasks = set(tasks_of(names).values())
    assert len(tasks) < len(names)
    assert {names.count(task) for task in tasks} == {1}
    first = names[: len(tasks)]
    assert set(first) == tasks


@pytest.mark.parametrize(("x", "n"), [(0, 24), (24, 24), (1, 24), (17, 24), (500, 1000), (3, 3)])
def test_wilsons_interval_is_scipys(x, n):
    found, theirs = wilson(x, n), binomtest(x, n).proportion_ci(0.95, "wilson")
    assert found.value == x / n
    assert found.low == pytest.approx(theirs.low, abs=1e-12)
    assert found.high == pytest.approx(theirs.high, abs=1e-12)


def test_of_nothing_there_is_no_share():
    assert math.isnan(wilson(0, 0).value)
    assert wilson(0, 0).note == "no programs"

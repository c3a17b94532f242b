import random
from collections import Counter
from itertools import combinations_with_replacement, pairwise

from workloads.agents.tasks.bfcl_tools.checker import Step, why_wrong

START = {"C": {"n": 0}}


def step(name, n, result=None):
    return Step(name, {"said": name} if result is None else result, {"C": {"n": n}})


TRUTH = [[step("a", 1)], [step("b", 1), step("c", 3)]]


def test_the_same_calls_are_right():
    assert why_wrong(START, [step("a", 1), step("b", 1), step("c", 3)], TRUTH) == ""


def test_more_calls_and_another_order_are_right():
    steps = [step("look", 0), step("a", 1), step("c", 3), step("b", 3), step("look", 3)]
    assert why_wrong(START, steps, TRUTH) == ""


def test_a_result_of_an_earlier_turn_counts():
    assert why_wrong(START, [step("b", 0), step("a", 1), step("c", 3)], TRUTH) == ""


def test_the_last_state_must_be_right():
    steps = [step("a", 1), step("b", 1), step("c", 3), step("d", 4)]
    assert why_wrong(START, steps, TRUTH) == "turn 2: not the state of the ground truth: C.n"


def test_each_turn_must_have_been_right():
    steps = [step("b", 0), step("a", 2), step("c", 3)]
    assert why_wrong(START, steps, TRUTH).startswith("turn 1: not the state of the ground truth")


def test_turns_must_be_right_one_after_the_other():
    truth = [[step("a", 1)], [step("b", 2)], [step("c", 1)]]
    assert why_wrong(START, [step("a", 1), step("b", 2), step("c", 1)], truth) == ""
    assert why_wrong(START, [step("b", 2), step("c", 1), step("a", 1)], truth) != ""


def test_a_result_that_is_wanted_twice_must_come_twice():
    truth = [[step("a", 1), step("a", 1)]]
    assert why_wrong(START, [step("a", 1)], truth) == "turn 1: no call had the result of the ground truth's a"
    assert why_wrong(START, [step("a", 1), step("a", 1)], truth) == ""


def test_a_turn_with_a_call_needs_one_of_its_own():
    truth = [[step("a", 1)], [step("a", 1)]]
    assert why_wrong(START, [step("a", 1)], truth) != ""


def test_no_calls_are_wrong_unless_none_are_wanted():
    assert why_wrong(START, [], TRUTH) == "turn 2: no call of its own"
    assert why_wrong(START, [], [[], []]) == ""


def test_a_turn_without_calls_may_have_any():
    truth = [[step("a", 1)], [], [step("c", 3)]]
    assert why_wrong(START, [step("a", 1), step("x", 2), step("c", 3)], truth) == ""
    assert why_wrong(START, [step("a", 1), step("x", 7)], [[step("a", 1)], []]) == ""


def right_as_bfcl_has_it(turns, truth):
    """Its check of calls whose turns are known, on results and states that are numbers."""
    so_far, state = Counter(), 0
    for calls, true_calls in zip(turns, truth, strict=True):
        so_far.update(call.name for call in calls)
        state = calls[-1].state["C"]["n"] if calls else state
        if true_calls and not (
            calls
            and state == true_calls[-1].state["C"]["n"]
            and Counter(call.name for call in true_calls) <= so_far
        ):
            return False
    return True


def test_right_is_what_some_cut_into_turns_makes_right():
    rng = random.Random(5)
    outcomes = Counter()
    for _ in range(3000):
        steps = [step(rng.choice("ab"), rng.randrange(2)) for _ in range(rng.randrange(6))]
        truth = [
            [step(rng.choice("ab"), rng.randrange(2)) for _ in range(rng.randrange(3))]
            for _ in range(rng.randrange(1, 4))
        ]
        cuts = combinations_with_replacement(range(len(steps) + 1), len(truth) - 1)
        bounds = ([0, *cut, len(steps)] for cut in cuts)
        possible = any(
            right_as_bfcl_has_it([steps[a:b] for a, b in pairwise(bound)], truth) for bound in bounds
        )
        assert (why_wrong(START, steps, truth) == "") == possible, (steps, truth)
        outcomes[possible] += 1
    assert min(outcomes.values()) > 300

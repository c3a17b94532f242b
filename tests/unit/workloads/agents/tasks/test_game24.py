"""The game of 24: exact arithmetic against a brute force of its own, the tool, and what counts as solved."""

import asyncio
from fractions import Fraction
from itertools import permutations, product
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workloads.agents.tasks.arithmetic import (
    Step,
    after,
    evaluate,
    expression,
    listed,
    ordered,
    parse_numbers,
    parse_step,
    reachable,
    solve,
    steps,
)
from workloads.agents.tasks.game24 import SUITE, Game24Task, Slate

F = Fraction
SHAPES = ("(({} {} {}) {} {}) {} {}", "({} {} ({} {} {})) {} {}", "({} {} {}) {} ({} {} {})",
          "{} {} (({} {} {}) {} {})", "{} {} ({} {} ({} {} {}))")  # fmt: skip


def brute(hand, goal=24):
    """Every order, every sign, every way to put parentheses; Python's own arithmetic on fractions."""
    for a, b, c, d in set(permutations(hand)):
        for x, y, z in product("+-*/", repeat=3):
            for shape in SHAPES:
                text = shape.format(
                    *[f"F({n})" if i % 2 == 0 else n for i, n in enumerate((a, x, b, y, c, z, d))]
                )
                try:
                    if eval(text, {"F": F}) == goal:
                        return True
                except ZeroDivisionError:
                    pass
    return False


def test_what_is_reachable_is_what_brute_force_finds():
    rng = Random(5)
    hands = [[rng.randint(1, 13) for _ in range(4)] for _ in range(2)] + [
        [1, 1, 1, 1],
        [3, 3, 8, 8],
        [1, 5, 5, 5],
    ]
    found = [reachable(ordered(hand), 24) for hand in hands]
    assert found == [brute(hand) for hand in hands]
    assert set(found) == {True, False}


@given(st.lists(st.integers(1, 13), min_size=1, max_size=4))
@settings(max_examples=12, deadline=None)
def test_a_solution_is_steps_that_reach_the_goal(hand):
    path = solve(ordered(hand), 24)
    if not path:
        assert len(hand) == 1 or not reachable(ordered(hand), 24)
        return
    left = ordered(hand)
    for step in path:
        left = after(left, step)
    assert left == (24,)
    assert evaluate(expression(hand, path)) == (24, sorted(hand))


@given(st.lists(st.fractions(-20, 20, max_denominator=6), min_size=2, max_size=4))
@settings(max_examples=12, deadline=None)
def test_each_step_survives_being_written_and_read(numbers):
    state = ordered(numbers)
    assert parse_numbers(listed(state)) == state
    options = steps(state)
    assert len({left for _, left in options}) == len(options)
    for step, left in options:
        assert parse_step(step.text()) == step
        assert after(state, step) == left


@pytest.mark.parametrize(
    ("text", "step"),
    [
        ("6 * 8 = 48", Step(F(6), "*", F(8))),
        ("I take 10-4, which leaves 6", Step(F(10), "-", F(4))),
        ("10 - -4", Step(F(10), "-", F(-4))),
        ("8/3 * 3", Step(F(8, 3), "*", F(3))),
        ("8/3", Step(F(8), "/", F(3))),
        ("6 \u00d7 8", Step(F(6), "*", F(8))),
        ("6 \u00f7 8", Step(F(6), "/", F(8))),
        ("2.5 + 1", Step(F(5, 2), "+", F(1))),
        ("hello", None),
        ("", None),
        ("6 ** 8", None),
        ("1/0 * 3", None),
        ("x" * 600 + "1 + 1", None),
    ],
)
def test_a_step_is_found_in_what_a_model_says(text, step):
    assert parse_step(text) == step


@pytest.mark.parametrize(
    ("step", "wrong"),
    [
        ("5 + 4", "5 is not among 4 6 8"),
        ("4 + 4", "4 is not among 4 6 8"),
        ("4 - 6", None),
        ("0 + 4", "0 is not"),
    ],
)
def test_steps_use_what_is_there(step, wrong):
    got = after(ordered([4, 6, 8]), parse_step(step))
    assert got == ordered([-2, 8]) if wrong is None else wrong in got
    assert after(ordered([0, 4]), Step(F(4), "/", F(0))) == "nothing can be divided by 0"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "2 +",
        "__import__('os')",
        "2 ** 3",
        "x",
        "2 + True",
        "1 / 0",
        "1.5 + 1",
        "-3",
        "(" * 300,
        "1,2",
        "9" * 501,
    ],
)
def test_only_plain_arithmetic_is_evaluated(text):
    with pytest.raises(ValueError, match="it"):
        evaluate(text)


def test_steps_of_other_numbers_are_no_expression():
    with pytest.raises(ValueError, match="9 is not there"):
        expression([1, 2], [Step(F(9), "+", F(1))])
    with pytest.raises(ValueError, match="2 numbers are left"):
        expression([1, 2], [])


def asked(name="step", **arguments):
    return asyncio.run(Slate().call(name, arguments))


def test_the_tool_says_what_is_left_or_what_is_wrong():
    assert asked(left="4 6 8 8", step="8 / 6") == "left: 4/3 4 8"
    assert asked(left="4/3 4 8", step="4/3 * 4") == "left: 16/3 8"
    assert asked(left="4 6", step="4 / 0") == "error: 0 is not among 4 6"
    assert asked(left="4 6", step="up") == "error: 'up' is no step such as '6 * 8'"
    assert (
        asked(left=46, step="4 + 6")
        == "error: step needs left (numbers) and step (such as '6 * 8'), both text"
    )
    assert asked() == asked(left="4 6")
    assert asked("stop").startswith("error: there is no tool 'stop': did you mean 'step'?")


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ("4 * (8 - (8 - 6)) = 24", ""),
        ("So 8 - 6 = 2, 8 - 2 = 6 and at last: 4 * (8 - (8 - 6))", ""),
        ("6 / (8 / 8) * 4", ""),
        ("(4 \u00d7 6) \u00f7 (8 \u00f7 8) = 24", ""),
        ("4 + 6 + 8 + 8 = 24", "4 + 6 + 8 + 8 is 26"),
        ("24 = 4 * (8 - (8 - 6))", ""),
        ("(4 - 8) / (6 * 8) = -1/12", "(4 - 8) / (6 * 8) is -1/12"),
        ("4 * 6", "does not use [4, 6, 8, 8] once each"),
        ("4 * 6 * 8 / 8 * 1", "does not use"),
        ("24", "does not use [4, 6, 8, 8] once each"),
        ("", "answered '': it is no expression"),
        ("I do not know", "it is no expression"),
        ("import os", "it is no expression"),
        ("4 / (8 - 8) * 6", "it divides by 0"),
    ],
)
def test_an_answer_is_solved_or_it_is_said_why_not(answer, why):
    task = Game24Task("hand", ("Make 24.",), (), {"numbers": [4, 6, 8, 8], "goal": 24})
    verdict = asyncio.run(task.check(task.toolbox(None), [answer]))
    assert verdict.success == (why == "")
    assert why in verdict.why
    assert "\n" not in verdict.why


def test_no_answer_is_no_solution():
    (task,) = SUITE.tasks(1, 1, None)
    assert not asyncio.run(task.check(task.toolbox(None), [])).success


def test_tasks_are_a_seeds_and_begin_alike():
    assert SUITE.missing(None) == ""
    few, many = SUITE.tasks(5, 1, None), SUITE.tasks(12, 1, None)
    assert [task.name for task in few] == [task.name for task in many[:5]]
    assert [task.name for task in few] != [task.name for task in SUITE.tasks(5, 2, None)]
    assert len({task.name for task in many}) == 12
    for task in many:
        assert reachable(ordered(task.data["numbers"]), 24)
        assert task.name == "-".join(["game24", *map(str, task.data["numbers"])])

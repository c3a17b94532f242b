"""Scripts of solutions: what they say is the solution, how long it is comes from a seed."""

from statistics import mean

import pytest

from tests.unit.workloads.agents.test_react import Talk
from workloads.agents.contract import Action, AgentError, Turn
from workloads.agents.scripts import ACTION, Dialogue, floor, lengthened
from workloads.random_streams import parse_dist

LONG = "x" * 4000


def test_each_call_is_answered_by_its_action():
    script = Dialogue(Talk(), 1)
    said = [script.turn("main", i, {}) for i in range(4)]
    assert [turn.text for turn in said] == ["let me see", "", "done", "done again"]
    assert [[(c.name, dict(c.arguments)) for c in turn.tool_calls] for turn in said[:2]] == [
        [("echo", {"x": "a"}), ("echo", {"x": "b"})],
        [("echo", {"x": "c"})],
    ]
    ids = [call.id for turn in said for call in turn.tool_calls]
    assert len(set(ids)) == 3


def test_a_script_is_a_pure_function():
    one, other = Dialogue(Talk(), 1), Dialogue(Talk(), 1)
    backwards = [other.turn("main", i, {}) for i in reversed(range(4))]
    assert [one.turn("main", i, {}) for i in range(4)] == backwards[::-1]
    lengths = {
        tuple(Dialogue(Talk(), seed).turn("main", i, {}).output_tokens for i in range(4)) for seed in range(9)
    }
    assert len(lengths) == 9


@pytest.mark.parametrize(("thread", "index"), [("main", 4), ("main", -1), ("n1", 0)])
def test_other_calls_have_no_answer(thread, index):
    with pytest.raises(AgentError, match="is none of them"):
        Dialogue(Talk(), 1).turn(thread, index, {})


def test_text_and_tool_calls_set_a_floor_and_the_caller_a_ceiling():
    four = parse_dist(4, "four")
    assert lengthened(Turn("hi"), four, {}, 1).output_tokens == 4
    assert lengthened(Turn(LONG), four, {}, 1).output_tokens == 1000
    assert lengthened(Turn(LONG), four, {"max_tokens": 50}, 1).output_tokens == 50
    assert lengthened(Turn(LONG), four, {"max_completion_tokens": 60}, 1).output_tokens == 60
    assert lengthened(Turn(LONG), four, {"max_output_tokens": 70}, 1).output_tokens == 70
    assert lengthened(Turn("hi"), four, {"max_tokens": None}, 1).output_tokens == 4
    script = Dialogue(Talk(), 1)
    called = script.turn("main", 0, {})
    assert floor(called) == -(-(len("let me see") + 2 * (len("echo") + len('{"x": "a"}'))) // 4)
    assert floor(Turn("")) == 1


def test_lengths_are_those_of_the_law():
    drawn = [lengthened(Turn("ok"), ACTION, {}, seed).output_tokens for seed in range(4000)]
    assert mean(drawn) == pytest.approx(34.1, rel=0.05)
    assert max(drawn) <= 600


@pytest.mark.parametrize(
    ("solution", "wrong"),
    [
        (((Action("a"),),), "solutions of 1 turns for 2"),
        (((), (Action("b"),)), "the solution of turn 0"),
        (((Action("a"), Action("b")), (Action("c"),)), "the solution of turn 0"),
        (((Action("a"),), (Action("b", (("echo", {}),)),)), "the solution of turn 1"),
    ],
)
def test_a_solution_that_is_none_is_refused(solution, wrong):
    class Wrong(Talk):
        pass

    Wrong.solution = solution
    with pytest.raises(AgentError, match=wrong):
        Dialogue(Wrong(), 1)

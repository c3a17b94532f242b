"""Map-Reduce: how many calls, how long a chain, what each of them sees."""

from math import ceil

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.scripted_chat import RoundsChat, ScriptedChat, say, worked
from workloads.agents.contract import AgentError, Budget, BudgetUsed, Told
from workloads.agents.mapreduce import AGENT, MapReduce, split
from workloads.agents.tasks.documents import SUITE


class Papers:
    """Documents of one short line each."""

    name, system, turns, files, solution = "papers", "Read.", ("What?",), {}, ()

    def __init__(self, k, text="a line\n"):
        self.data = {"documents": {f"d{i}": text for i in range(k)}}

    def toolbox(self, sandbox):
        return SUITE.tasks(1, 1, None)[0].toolbox(sandbox)

    async def check(self, toolbox, answers):
        return answers


def expected_calls(k, fan_in):
    """By hand: k map calls, then a call per group, until one is left."""
    total, notes = k, k
    while True:
        notes = ceil(notes / fan_in)
        total += notes
        if notes == 1:
            return total


@pytest.mark.parametrize("fan_in", [2, 4])
@pytest.mark.parametrize(
    ("k", "rounds_of"), [(1, {2: 1, 4: 1}), (4, {2: 2, 4: 1}), (5, {2: 3, 4: 2}), (17, {2: 5, 4: 3})]
)
def test_calls_and_the_longest_chain(k, fan_in, rounds_of):
    agent, told = MapReduce(fan_in=fan_in), Told()
    chat = RoundsChat(say("note"))
    worked(agent, Papers(k), chat, told=told)
    rounds = rounds_of[fan_in]
    assert sum(chat.rounds) == len(chat.asked) == expected_calls(k, fan_in)
    assert len(chat.rounds) == 1 + rounds == 1 + agent.rounds(k)
    assert chat.rounds[0] == k
    assert told.notes == {"pieces": k, "rounds": rounds}
    assert max(chat.calls.values()) == 1
    assert {thread for thread in chat.calls if thread.startswith("map-")} == {f"map-{i}" for i in range(k)}
    assert f"reduce-{rounds - 1}-0" in chat.calls


def test_a_reduce_call_sees_the_notes_of_its_group():
    def answer(thread, index, asked):
        return say(f"note of {thread}\nin two lines")(thread, index, asked)

    chat = ScriptedChat(answer)
    answers, _ = worked(MapReduce(fan_in=2), Papers(3), chat)
    seen = {thread: body["messages"][-1]["content"] for thread, _, body in chat.asked}
    assert "- note of map-0 in two lines\n- note of map-1 in two lines\n" in seen["reduce-0-0"]
    assert "map-2" in seen["reduce-0-1"]
    assert "map-1" not in seen["reduce-0-1"]
    assert "- note of reduce-0-0 in two lines\n- note of reduce-0-1 in two lines\n" in seen["reduce-1-0"]
    assert seen["reduce-1-0"].endswith("answer the question.")
    assert not seen["reduce-0-0"].endswith("answer the question.")
    assert answers == ["note of reduce-1-0\nin two lines"]


def test_map_calls_share_all_but_their_piece():
    chat = ScriptedChat(say("note"))
    worked(AGENT, Papers(2), chat)
    one, two = (body["messages"] for thread, _, body in chat.asked if thread.startswith("map"))
    assert one[0] == two[0]
    assert one[1]["content"].partition("\n\nd0")[0] == two[1]["content"].partition("\n\nd1")[0]


@given(st.text(alphabet="ab\n", max_size=120), st.integers(1, 30))
@settings(max_examples=150, deadline=None)
def test_pieces_are_short_and_join_to_the_text(text, most):
    pieces = split(text, most)
    assert "".join(pieces) == text
    assert all(0 < len(piece) <= most for piece in pieces)
    if all(len(line) < most for line in text.splitlines()):
        assert all(piece.endswith("\n") for piece in pieces[:-1])


def test_long_documents_become_several_pieces():
    pieces = MapReduce(piece=20).pieces({"long": "12345678\n" * 5, "short": "x"})
    assert [label for label, _ in pieces] == [
        "long, part 1 of 3", "long, part 2 of 3", "long, part 3 of 3", "short, part 1 of 1",
    ]  # fmt: skip
    assert pieces[0][1] == "12345678\n" * 2


def test_no_text_is_an_error_and_a_budget_is_kept():
    with pytest.raises(AgentError, match="no text"):
        worked(AGENT, Papers(2, text=""), ScriptedChat(say("x")))
    chat = ScriptedChat(say("x"))
    with pytest.raises(BudgetUsed):
        worked(AGENT, Papers(5), chat, budget=Budget(calls=3))
    assert len(chat.asked) == 3


def test_a_script_needs_a_question():
    with pytest.raises(AgentError, match="papers: its data has no question"):
        AGENT.script(Papers(1), 1)
    script = AGENT.script(SUITE.tasks(1, 1, None)[0], 1)
    with pytest.raises(AgentError, match="nothing for thread main"):
        script.turn("main", 0, {"messages": [{"content": ""}]})


@pytest.mark.parametrize("values", [{"piece": 0}, {"fan_in": 1}])
def test_impossible_shapes_are_refused(values):
    with pytest.raises(ValueError, match="piece must be at least 1 and fan_in at least 2"):
        MapReduce(**values)


def test_any_shape_finds_the_answer():
    for piece, fan_in in ((60, 2), (500, 3), (100_000, 9)):
        for task in SUITE.tasks(4, 5, None):
            agent = MapReduce(piece, fan_in)
            answers, verdict = worked(
                agent, task, ScriptedChat(agent.script(task, 1)), budget=Budget(calls=999)
            )
            assert verdict.success, (task.name, answers, verdict)

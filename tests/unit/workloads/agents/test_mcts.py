"""LATS on the game of 24: what is asked, in which threads, how a search branches and goes back."""

import re
from statistics import mean

import pytest

from tests.scripted_chat import RoundsChat, ScriptedChat, worked
from workloads.agents.contract import AgentError, Budget, Told, Turn
from workloads.agents.mcts import AGENT, Mcts, score
from workloads.agents.tasks.documents import SUITE as DOCUMENTS
from workloads.agents.tasks.game24 import SUITE, Game24Task

HAND = Game24Task("hand", ("Make 24.",), (), {"numbers": [4, 6, 8, 8], "goal": 24})


def planned(proposals, rates=None):
    """A chat's answers: proposals by what is left (round and round), scores by what is left (default 5)."""
    given = {}

    def answer(thread, index, asked):
        ask = asked["messages"][-1]["content"]
        left = re.findall(r"^left: (.*)$", ask, re.MULTILINE)[-1]
        if "Score" in ask:
            return Turn(f"Score: {(rates or {}).get(left, 5)}")
        if "failed" in ask and "sentences" in ask:
            return Turn(f"not {left} again")
        given[left] = given.get(left, -1) + 1
        return Turn(proposals[left][given[left] % len(proposals[left])])

    return answer


WAY = {
    "4 6 8 8": ["8 - 6 = 2", "4 + 6 = 10"],
    "2 4 8": ["2 * 8 = 16", "8 - 4 = 4"],
    "8 8 10": ["8 / 8 = 1", "10 - 8 = 2"],
    "4 16": ["4 + 16 = 20", "16 / 4 = 4"],
    "2 4": ["2 + 4 = 6"],
    "1 10": ["1 + 10 = 11"],
    "2 8": ["2 * 8 = 16"],
}


def test_a_search_goes_into_a_branch_back_and_reflects():
    good = {**WAY, "2 4 8": ["2 * 8 = 16", "2 + 4 = 6"], "6 8": ["6 + 8 = 14", "6 * 8 = 48"]}
    rates = {"2 4 8": 9, "8 8 10": 2, "4 16": 8, "6 8": 7}
    chat, told = ScriptedChat(planned(good, rates)), Told()
    agent = Mcts(width=2, iterations=2, exploration=0.0)
    answers, verdict = worked(agent, HAND, chat, told=told)
    assert not verdict.success
    order = [(thread, index) for thread, index, _ in chat.asked]
    assert order[:4] == [("n1", 0), ("n2", 0), ("n1", 1), ("n2", 1)]
    assert ("reflect-0", 0) in order
    at = order.index(("reflect-0", 0))
    lessons = ["An earlier try failed: not" in body["messages"][1]["content"] for *_, body in chat.asked]
    assert not any(lessons[: at + 1])
    assert all(lessons[at + 1 :])
    assert told.notes["trajectories"] == 2
    assert told.notes["reflections"] == 2
    assert answers[0].endswith("= 20")


def test_a_solved_trajectory_ends_the_search():
    solving = {**WAY, "4 16": ["4 + 16 = 20", "16 + 4 = 20"], "2 4 8": ["8 - 2 = 6", "2 * 4 = 8"]}
    solving |= {"4 6": ["4 * 6 = 24", "6 - 4 = 2"], "8 8": ["8 + 8 = 16"]}
    chat, told = ScriptedChat(planned(solving, {"2 4 8": 9, "4 6": 9})), Told()
    answers, verdict = worked(Mcts(width=2), HAND, chat, told=told)
    assert verdict.success, answers
    assert answers == ["4 * (8 - (8 - 6)) = 24"]
    assert told.notes == {
        "nonsense": 0, "duplicates": 0, "reflections": 0, "trajectories": 1, "nodes": 7, "solved": True,
    }  # fmt: skip


def test_a_thread_is_a_child_and_its_value_continues_its_prompt():
    chat = ScriptedChat(planned(WAY))
    worked(Mcts(width=2, iterations=1), HAND, chat)
    by_thread = {}
    for thread, index, body in chat.asked:
        assert index == len(by_thread.setdefault(thread, []))
        by_thread[thread].append(body)
    proposal, value = by_thread["n1"]
    assert value["messages"][: len(proposal["messages"])] == proposal["messages"]
    assert value["messages"][-2] == {"role": "assistant", "content": "8 - 6 = 2"}
    assert value["messages"][-1]["content"].startswith("left: 2 4 8\n")
    same = [body["messages"] for *_, body in chat.asked if len(body["messages"]) == 2]
    assert same[0] == same[1], "proposals of a node share their prompt"
    assert (proposal["temperature"], value["temperature"]) == (1.0, 0.0)
    assert (proposal["seed"], by_thread["n2"][0]["seed"]) == (1, 2)


def test_proposals_and_values_are_asked_for_at_once():
    chat = RoundsChat(planned(WAY))
    worked(Mcts(width=5, iterations=1), HAND, chat)
    # Expand, value two states; expand, value two; expand: two ends that need no value; reflect.
    assert chat.rounds == [5, 2, 5, 2, 5, 1]


def test_states_are_counted_once_and_their_share_counts():
    """Of five proposals three lead to the same: with nothing but consistency it is the first choice."""
    hand = {**WAY, "4 6 8 8": ["4 + 6 = 10", "8 - 6 = 2", "8 - 6 = 2", "6 + 4 = 10", "4 + 6"]}
    chat, told = ScriptedChat(planned(hand)), Told()
    worked(Mcts(width=5, iterations=1, consistency=1.0), HAND, chat, told=told)
    assert told.notes["duplicates"] >= 3
    second = [body for thread, index, body in chat.asked if thread == "n6" and index == 0]
    assert second[0]["messages"][-1]["content"].startswith("left: 8 8 10\n")


def test_proposals_that_are_no_steps_make_no_children():
    chat, told = ScriptedChat(planned({"4 6 8 8": ["hm", "9 * 9 = 81", "8 / 0"]})), Told()
    answers, verdict = worked(Mcts(width=3, iterations=2), HAND, chat, told=told)
    assert told.notes == {
        "nonsense": 6, "duplicates": 0, "reflections": 0, "trajectories": 2, "nodes": 1, "solved": False,
    }  # fmt: skip
    assert answers == ["No solution found; tried: nothing"]
    assert not verdict.success


def test_the_tool_is_told_of_in_its_thread():
    seen, told = [], Told()
    told.tool = lambda *ran: seen.append(ran)
    worked(Mcts(width=2, iterations=1), HAND, ScriptedChat(planned(WAY)), told=told)
    assert [(thread, name, ok) for thread, name, _, _, ok in seen[:2]] == [
        ("n1", "step", True),
        ("n2", "step", True),
    ]
    assert len(seen) == 6


@pytest.mark.parametrize(
    ("text", "value"),
    [("Score: 7", 0.7), ("score is 10", 1.0), ("3 of 10 at first. Score: 2", 0.2), ("Score: 99", 1.0),
     ("8", 0.8), ("score: none", 0.0), ("", 0.0), ("Score: " + "9" * 5000, 1.0)],
)  # fmt: skip
def test_scores_are_read_with_patience(text, value):
    assert score(text) == value


@pytest.mark.parametrize("values", [{"width": 0}, {"iterations": 0}, {"depth": 0}])
def test_impossible_sizes_are_refused(values):
    with pytest.raises(ValueError, match="must be at least 1"):
        Mcts(**values)


@pytest.mark.parametrize("values", [{"consistency": 1.5}, {"exploration": -1.0}, {"temperature": -0.1}])
def test_impossible_weights_are_refused(values):
    with pytest.raises(ValueError, match="consistency must be from 0 to 1"):
        Mcts(**values)


def test_a_scripted_search_branches_fails_and_is_not_always_right():
    """The script's player was chosen so; these are its bounds over 12 hands, not a measurement."""
    solved, calls, trajectories, wrong, again = 0, [], [], 0, 0
    for task in SUITE.tasks(12, 11, None):
        chat, told = ScriptedChat(AGENT.script(task, 1)), Told()
        _, verdict = worked(AGENT, task, chat, told=told)
        assert verdict.success == told.notes["solved"]
        solved += verdict.success
        calls.append(len(chat.asked))
        trajectories.append(told.notes["trajectories"])
        wrong += told.notes["nonsense"]
        again += told.notes["duplicates"]
    assert 6 <= solved <= 11
    assert 25 <= mean(calls) <= 80
    assert max(trajectories) >= 5
    assert min(wrong, again) > 5


def test_a_scripted_search_is_the_same_each_time():
    (task,) = SUITE.tasks(1, 3, None)

    def once(seed):
        chat = ScriptedChat(AGENT.script(task, seed))
        answers, _ = worked(AGENT, task, chat)
        return answers, chat.turns

    assert once(1) == once(1)
    assert once(1) != once(2)


def test_a_script_knows_its_game_and_its_threads():
    with pytest.raises(AgentError, match="no numbers and goal"):
        AGENT.script(DOCUMENTS.tasks(1, 1, None)[0], 1)
    script = AGENT.script(HAND, 1)
    asked = {"messages": [{"role": "user", "content": "left: 4 6 8 8\nSay the next step."}]}
    assert script.turn("n1", 0, asked) == script.turn("n1", 0, asked)
    for thread, index in (("main", 0), ("n1", 2), ("reflect-0", 1)):
        with pytest.raises(AgentError, match="has nothing for call"):
            script.turn(thread, index, asked)
    with pytest.raises(AgentError, match="does not say what is left"):
        script.turn("n1", 0, {"messages": [{"role": "user", "content": "hello"}]})


def test_too_few_calls_end_a_search_with_what_it_has():
    chat, told = ScriptedChat(planned(WAY)), Told()
    answers, verdict = worked(Mcts(width=2), HAND, chat, budget=Budget(calls=5), told=told)
    assert len(chat.asked) == 4
    assert told.notes["trajectories"] == 0
    assert answers[0].startswith("No solution found; tried: ")
    assert not verdict.success

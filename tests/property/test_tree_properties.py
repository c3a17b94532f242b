"""Invariants of a tree search, whatever is proposed and however it is valued."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.scripted_chat import ScriptedChat, worked
from tests.unit.workloads.agents.test_tree import Toy, grown
from workloads.agents.contract import Budget, Told, Turn
from workloads.agents.mcts import Mcts
from workloads.agents.tasks.game24 import SUITE
from workloads.agents.tree import Knobs

UNIT = st.floats(0, 1)


class AnyScores(Toy):
    """Scores are hypothesis' own, the tree is a seed's."""

    def __init__(self, seed, width, scores):
        super().__init__(seed, width)
        self.scores = scores

    def score(self, path):
        return self.scores[self.draw("which", path).below(len(self.scores))]


@given(
    seed=st.integers(0, 10_000),
    width=st.integers(1, 5),
    scores=st.lists(UNIT, min_size=1, max_size=8),
    knobs=st.builds(Knobs, st.floats(0, 5), UNIT, st.integers(1, 5), st.integers(1, 15)),
)
@settings(max_examples=80, deadline=None)
def test_a_tree_holds_what_happened(seed, width, scores, knobs):
    world = AnyScores(seed, width, scores)
    root, taken = grown(world, knobs)
    nodes = list(root.tree())
    ended = [node.visits - 1 - sum(child.visits - 1 for child in node.children) for node in nodes]
    assert root.visits == 1 + taken <= 1 + knobs.iterations
    assert min(ended) >= 0
    assert sum(ended) == taken
    assert all(node.terminal or not node.children for node, here in zip(nodes, ended, strict=True) if here)
    for node in nodes:
        assert -1e-9 <= node.value <= 1 + 1e-9
        assert node.depth <= knobs.depth
        assert not (node.terminal and node.children)
        assert node.terminal or not node.solved
        assert not node.solved or node.value == 1.0
    assert sum(here for node, here in zip(nodes, ended, strict=True) if node.solved) <= 1
    grew = [path for path in world.expanded if world.children(path)]
    assert len(grew) == len(set(grew)), "a node with children was expanded again"
    assert taken == knobs.iterations or root.closed or any(node.solved for node in nodes)


@given(
    said=st.lists(st.text(max_size=60) | st.sampled_from(["1 + 1", "Score: 99", "3 * 4 = 12"]), min_size=1)
)
@settings(max_examples=40, deadline=None)
def test_nonsense_from_a_model_is_no_crash(said):
    def answer(thread, index, asked):
        return Turn(said[sum(map(ord, thread)) % len(said)])

    (task,), told = SUITE.tasks(1, 3, None), Told()
    chat = ScriptedChat(answer)
    answers, verdict = worked(Mcts(iterations=4), task, chat, budget=Budget(calls=60), told=told)
    assert len(answers) == 1
    assert verdict.success == told.notes["solved"]
    assert sum(chat.calls.values()) <= 60


@pytest.mark.parametrize("calls", [0, 4, 5, 9, 14, 40])
def test_a_search_takes_no_more_calls_than_it_may(calls):
    (task,) = SUITE.tasks(1, 4, None)
    chat = ScriptedChat(Mcts().script(task, 1))
    answers, _ = worked(Mcts(), task, chat, budget=Budget(calls=calls))
    assert sum(chat.calls.values()) <= calls
    assert len(answers) == 1

"""LATS' control flow against a reference that keeps no tree, only the trajectories there were."""

import asyncio
import math

import pytest

from workloads.agents.tree import Knobs, Node, back_up, best, search, select, uct
from workloads.keys import key_of
from workloads.random_streams import stream

DEEP = 4


class Toy:
    """A world that is a function of a seed: what can be proposed at a path, and how that is scored.

    Scores are coarse, so that they tie. Some ways end early, few are solved, some nodes have no children.
    """

    def __init__(self, seed, width=3, solved=0.08):
        self.seed, self.width, self.solved = seed, width, solved
        self.expanded, self.failed = [], []

    def draw(self, what, path):
        return stream(key_of(self.seed, what, *path), "toy")

    def children(self, path):
        """(share, terminal, solved) of each."""
        if self.draw("barren", path).bernoulli(0.08):
            return []
        return [self.child((*path, i)) for i in range(1 + self.draw("width", path).below(self.width))]

    def child(self, path):
        draw = self.draw("child", path)
        share = (1 + draw.below(self.width)) / self.width
        terminal, solved = draw.bernoulli(0.2), draw.bernoulli(self.solved)
        return share, terminal or solved, solved

    def score(self, path):
        return self.draw("score", path).below(4) / 3

    async def expand(self, node):
        self.expanded.append(node.state)
        found = enumerate(self.children(node.state))
        return [
            Node(str(i), (*node.state, i), node, share=share, terminal=terminal, solved=solved)
            for i, (share, terminal, solved) in found
        ]

    async def evaluate(self, nodes):
        return [self.score(node.state) for node in nodes]

    async def reflect(self, node):
        self.failed.append(node.state)


class Reference:
    """The same rules with nothing kept but what was expanded and the trajectories: (path, reward)."""

    def __init__(self, world, knobs):
        self.world, self.knobs = world, knobs
        self.expanded, self.trajectories = [], []

    def children(self, path):
        if path not in self.expanded:
            return []
        return [(*path, i) for i in range(len(self.world.children(path)))]

    def fact(self, path):
        share, terminal, solved = self.world.child(path) if path else (1.0, False, False)
        return share, terminal or len(path) == self.knobs.depth, solved

    def first_value(self, path):
        share, terminal, solved = self.fact(path)
        if terminal:
            return 1.0 if solved else 0.0
        if not path:
            return 0.0
        return (1 - self.knobs.consistency) * self.world.score(path) + self.knobs.consistency * share

    def through(self, path):
        return [reward for way, reward in self.trajectories if way[: len(path)] == path]

    def visits(self, path):
        return 1 + len(self.through(path))

    def value(self, path):
        return (self.first_value(path) + sum(self.through(path))) / self.visits(path)

    def closed(self, path):
        kids = self.children(path)
        return self.fact(path)[1] or (kids != [] and all(self.closed(kid) for kid in kids))

    def bound(self, path):
        return self.value(path) + self.knobs.exploration * math.sqrt(
            math.log(self.visits(path[:-1])) / self.visits(path)
        )

    def run(self):
        for _ in range(self.knobs.iterations):
            if self.closed(()):
                return
            path = ()
            while self.children(path):
                path = self.first_best(
                    [kid for kid in self.children(path) if not self.closed(kid)], self.bound
                )
            while not self.fact(path)[1]:
                self.expanded.append(path)
                kids = self.children(path)
                if not kids:
                    break
                path = self.down(kids)
            self.trajectories.append((path, float(self.fact(path)[2])))
            if self.fact(path)[2]:
                return

    def down(self, kids):
        solved = [kid for kid in kids if self.fact(kid)[2]]
        going = [kid for kid in kids if not self.fact(kid)[1]]
        if solved:
            return self.first_best(solved, lambda kid: self.fact(kid)[0])
        if going:
            return self.first_best(going, lambda kid: (self.value(kid), self.fact(kid)[0]))
        return self.first_best(kids, lambda kid: self.fact(kid)[0])

    def first_best(self, paths, by):
        top = max(by(path) for path in paths)
        return next(path for path in paths if near(by(path), top))


def near(a, b):
    """Means that were summed in another order may differ in the last digit."""
    return all(math.isclose(x, y, abs_tol=1e-12) for x, y in zip(*map(many, (a, b)), strict=True))


def many(value):
    return value if isinstance(value, tuple) else (value,)


def grown(world, knobs):
    root = Node("root", ())
    return root, asyncio.run(search(world, root, knobs))


@pytest.mark.parametrize("exploration", [0.0, 0.7, 3.0])
@pytest.mark.parametrize("consistency", [0.0, 0.5])
def test_a_search_is_that_of_the_reference(exploration, consistency):
    stopped = set()
    for seed in range(60):
        world, knobs = Toy(seed), Knobs(exploration, consistency, DEEP, 12)
        reference = Reference(Toy(seed), knobs)
        reference.run()
        root, taken = grown(world, knobs)
        assert world.expanded == reference.expanded, seed
        assert taken == len(reference.trajectories)
        for node in root.tree():
            assert node.visits == reference.visits(node.state)
            assert node.value == pytest.approx(reference.value(node.state))
            assert node.closed == reference.closed(node.state)
        failed = [way for way, reward in reference.trajectories if not reward and reference.fact(way)[1]]
        assert world.failed == failed
        stopped.add("solved" if best(root).solved else "closed" if root.closed else "over")
    assert stopped == {"solved", "closed", "over"}


def test_the_bound_is_equation_1():
    root = Node("root", 0, visits=7)
    child = Node("a", 1, root, first=0.8, visits=2)
    assert uct(child, 1.0) == pytest.approx(0.4 + math.sqrt(math.log(7) / 2))
    assert uct(child, 0.0) == pytest.approx(0.4)


def test_what_was_tried_often_loses_to_what_was_not():
    root = Node("root", 0, visits=30)
    often, seldom = Node("a", 1, root, first=10.0, visits=20), Node("b", 2, root, first=0.6, visits=2)
    root.children = [often, seldom]
    assert select(root, 1.0) is seldom
    assert select(root, 0.0) is often


def test_a_reward_reaches_all_on_the_way_and_nobody_else():
    root = Node("root", 0)
    child = Node("a", 1, root, first=0.6)
    aside = Node("b", 2, root, first=0.6)
    root.children = [child, aside]
    back_up(child, 0.0)
    back_up(child, 1.0)
    assert (root.visits, child.visits, aside.visits) == (3, 3, 1)
    assert child.value == pytest.approx((0.6 + 0 + 1) / 3)
    assert (aside.value, root.value) == (0.6, pytest.approx(1 / 3))


def test_a_search_goes_back_from_a_branch_that_fails():
    """The best first child leads to failures only: the second branch is reached, and solves it."""

    class Trap(Toy):
        def children(self, path):
            return [self.child((*path, i)) for i in range(2)]

        def child(self, path):
            end = len(path) == 2
            return 0.5, end, end and path == (1, 1)

        def score(self, path):
            return 0.9 if path == (0,) else 0.2

    world = Trap(0)
    root, taken = grown(world, Knobs(iterations=9))
    assert (world.expanded, taken) == ([(), (0,), (1,)], 2)
    assert world.failed == [(0, 0)]
    assert best(root).state == (1, 1)


def test_the_depth_ends_a_way():
    world = Toy(0, solved=0.0)
    root, _ = grown(world, Knobs(depth=2))
    deepest = [node for node in root.tree() if node.depth == 2]
    assert deepest
    assert all(node.terminal and not node.solved and not node.children for node in deepest)
    assert all(len(path) < 2 for path in world.expanded)

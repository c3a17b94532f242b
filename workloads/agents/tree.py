"""Language agent tree search: LATS' control flow, without what it searches (arXiv 2310.04406).

Per trajectory (section 4.2, algorithm 1 in appendix A): select a leaf by UCT (equation 1), expand it, value
its children, go down from the best of them in the same way until a terminal node, back its reward up, and
reflect if it failed. All nodes stay in the tree, those of the way down among them.

Where the paper leaves room: a child's value (equation 2) counts as its first visit, so that UCT is finite; a
node is closed once it is terminal or all its children are closed, and is not selected again; ties go to the
child that was proposed first. Of a way down, the reward is 1 or 0.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, Protocol, TypeVar

S = TypeVar("S")


@dataclass(eq=False, slots=True)
class Node(Generic[S]):
    """A state and the way to it. ``name``: its thread; ``said``: the proposal that led here, as it came.

    ``first``: its value when it was new, in [0, 1]; ``visits``: 1 + trajectories through it, and ``rewards``
    what came back, summed. ``share``: the part of its expansion's proposals that led to this state.
    """

    name: str
    state: S
    parent: Node[S] | None = None
    said: str = ""
    share: float = 1.0
    terminal: bool = False
    solved: bool = False
    first: float = 0.0
    visits: int = 1
    rewards: float = 0.0
    children: list[Node[S]] = field(default_factory=list)

    @property
    def value(self) -> float:
        """Mean of its first value and of the rewards that came back through it, in [0, 1]."""
        return (self.first + self.rewards) / self.visits

    @property
    def depth(self) -> int:
        """Steps from the root."""
        return len(self.path()) - 1

    @property
    def closed(self) -> bool:
        """Whether nothing new can come of it."""
        return self.terminal or (bool(self.children) and all(child.closed for child in self.children))

    def path(self) -> list[Node[S]]:
        """From the root to here."""
        return [*self.parent.path(), self] if self.parent else [self]

    def tree(self) -> Iterator[Node[S]]:
        """This node and all below it, parents first."""
        yield self
        for child in self.children:
            yield from child.tree()


class World(Protocol[S]):
    """What is searched."""

    async def expand(self, node: Node[S]) -> Sequence[Node[S]]:
        """New children, a state once, terminal and solved set, not yet valued; none if nothing came of it."""

    async def evaluate(self, nodes: Sequence[Node[S]]) -> Sequence[float]:
        """The model's score of each, in [0, 1]."""

    async def reflect(self, node: Node[S]) -> None:
        """A trajectory that ended at ``node`` failed."""


class Knobs(NamedTuple):
    """``exploration``: w of equation 1; ``consistency``: 1 - lambda of equation 2; ``depth``: of the tree.

    ``iterations``: trajectories at most. Defaults of appendix A (w) and D.4 (the others).
    """

    exploration: float = 1.0
    consistency: float = 0.5
    depth: int = 5
    iterations: int = 30


def uct(node: Node[S], exploration: float) -> float:
    """Upper confidence bound of a child (equation 1)."""
    assert node.parent is not None, "the root is no child"
    return node.value + exploration * math.sqrt(math.log(node.parent.visits) / node.visits)


def select(root: Node[S], exploration: float) -> Node[S] | None:
    """The open leaf that UCT leads to; None if all is closed."""
    if root.closed:
        return None
    node = root
    while node.children:
        node = max((c for c in node.children if not c.closed), key=lambda child: uct(child, exploration))
    return node


def back_up(node: Node[S], reward: float) -> None:
    """A trajectory ended at ``node``: a visit and the reward to all on its way."""
    for passed in node.path():
        passed.visits += 1
        passed.rewards += reward


def best(root: Node[S]) -> Node[S]:
    """What to answer with: a solved node, else the deepest of the highest value."""
    return max(root.tree(), key=lambda node: (node.solved, node.depth, node.value))


async def search(world: World[S], root: Node[S], knobs: Knobs) -> int:
    """Grow the tree below ``root`` until a node is solved or all is closed; how many trajectories it took."""
    for taken in range(knobs.iterations):
        leaf = select(root, knobs.exploration)
        if leaf is None:
            return taken
        end = await _simulate(world, leaf, knobs)
        back_up(end, float(end.solved))
        if end.solved:
            return taken + 1
        if end.terminal:
            await world.reflect(end)
    return knobs.iterations


async def _simulate(world: World[S], node: Node[S], knobs: Knobs) -> Node[S]:
    """Down from a leaf, by the best child, to a terminal node or to one of which nothing came."""
    while not node.terminal:
        await _grow(world, node, knobs)
        if not node.children:
            return node
        node = max(
            node.children, key=lambda child: (child.solved, not child.terminal, child.value, child.share)
        )
    return node


async def _grow(world: World[S], node: Node[S], knobs: Knobs) -> None:
    """Expand a leaf and value its children; the tree changes at once, when all is known."""
    children = await world.expand(node)
    if node.depth + 1 >= knobs.depth:
        for child in children:
            child.terminal = True
    open_ones = [child for child in children if not child.terminal]
    scores = await world.evaluate(open_ones) if open_ones else ()
    for child, score in zip(open_ones, scores, strict=True):
        child.first = (1 - knobs.consistency) * score + knobs.consistency * child.share
    for child in children:
        if child.terminal:
            child.first = float(child.solved)
    node.children = list(children)

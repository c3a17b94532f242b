"""MCTS: language agent tree search (LATS) on HotpotQA (Autellix, section 5).

Each iteration picks a node of the frontier uniformly (it stays there and may be
picked again: this gives the calibrated 163 calls), expands it, values the
children, and rolls out from one of them. Phases follow each other; inside a
phase calls run concurrently, so the parents of a call are the calls of the
phase before it.

Prompts: a child's prompt is its parent's whole prompt, then its own expansion,
then an observation that fills the growth up to ``growth`` tokens (at least 1).
A value call sends exactly the prompt the child's own expansions will send.
Searching for the observation takes tool time, before the value call. Duplicate
and terminal children need no search.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from vocabulary import on_grid
from workloads import tot
from workloads.base import ProgramSet
from workloads.parameters import Parameters, read_presets, resolve
from workloads.phases import together
from workloads.random_streams import Dist, stream
from workloads.recipe import Recipe
from workloads.session import Session

_TOML = Path(__file__).with_suffix(".toml")


@dataclass(frozen=True, slots=True)
class Shape:
    """What a search is drawn from; lengths in tokens, ``tool_s`` in seconds."""

    iterations: int
    samples: int
    unique: float
    rollout_depth: int
    tree_depth: int
    p_success: float
    hazard: dict[int, float]
    first_prompt: int
    growth: int
    output: Dist
    value_output: Dist
    tool_s: Dist

    @property
    def longest(self) -> int:
        """Prompt + output of the longest call there can be (tokens)."""
        reply, value = self.output.most_tokens, self.value_output.most_tokens
        return self.first_prompt + max(self.growth, reply + 1) * self.tree_depth + max(reply, value)


@dataclass(slots=True)
class Node:
    """A node of the tree: the thread whose context leads to it, and its depth."""

    thread: Session
    depth: int


class Search:
    """One LATS search. ``s`` is the program's root thread, and its control flow."""

    def __init__(self, shape: Shape, s: Session) -> None:
        self.shape = shape
        self.s = s
        self.picks = stream(s.key, "pick")

    async def run(self) -> None:
        """Search until a terminal node succeeds or the iterations are used up."""
        shape, s = self.shape, self.s
        s.add((s.new_id(), shape.first_prompt))
        frontier = [Node(s, 0)]
        for _ in range(shape.iterations):
            node = self.picks.choice(frontier)
            children, success, _ = await self.expand(node)
            if success:
                return
            await self.value(children)
            frontier += [child for child in children if child.depth <= shape.tree_depth]
            if children and await self.roll_out(self.picks.choice(children)):
                return

    async def roll_out(self, node: Node) -> bool:
        """Go down from ``node``; true if a terminal node succeeded."""
        while node.depth < self.shape.rollout_depth:
            children, success, terminal = await self.expand(node)
            if success or terminal or not children:
                return success
            await self.value(children)
            node = self.picks.choice(children)
        return False

    async def expand(self, node: Node) -> tuple[list[Node], bool, bool]:
        """Sample concurrently: (open children, one succeeded, one was terminal)."""
        shape = self.shape
        forks = [node.thread.fork() for _ in range(shape.samples)]
        lengths = [shape.output.tokens(stream(fork.key, "output")) for fork in forks]
        await together(
            self.s, forks, [_ask(fork, length) for fork, length in zip(forks, lengths, strict=True)]
        )
        # A node may be expanded again: its newest child's key makes the draw new.
        unique = stream(forks[0].key, "unique").binomial(shape.samples, shape.unique)
        children, depth, terminal = [], node.depth + 1, False
        for fork, length in list(zip(forks, lengths, strict=True))[: max(1, unique)]:
            if stream(fork.key, "terminal").bernoulli(shape.hazard.get(depth, 1.0)):
                if stream(fork.key, "success").bernoulli(shape.p_success):
                    return [], True, True
                terminal = True
            else:
                fork.add((fork.new_id(), max(1, shape.growth - length)))
                children.append(Node(fork, depth))
        return children, False, terminal

    async def value(self, children: list[Node]) -> None:
        """Observe and value the children, concurrently."""
        forks = [child.thread.fork() for child in children]
        await together(self.s, forks, [self._judge(fork) for fork in forks])

    async def _judge(self, fork: Session) -> None:
        await fork.tool("search", on_grid(max(0.0, self.shape.tool_s.value(stream(fork.key, "search")))))
        await fork.call(output=self.shape.value_output.tokens(stream(fork.key, "value")))


async def _ask(fork: Session, output: int) -> None:
    await fork.call(output=output)


async def search(shape: Shape, s: Session) -> None:
    """One program."""
    await Search(shape, s).run()


class Mcts:
    """Presets: ``lats``, and ``tot`` (Tree of Thoughts, see ``tot.py``)."""

    name = "mcts"
    default_preset = "lats"

    def presets(self) -> list[str]:
        """Names of the presets."""
        return list(read_presets(_TOML))

    def build(
        self, n: int, seed: int, preset: str | None = None, parameters: Mapping[str, object] = {}
    ) -> ProgramSet:
        """``n`` searches. Raises WorkloadError for a bad preset or parameter."""
        return self.recipe(preset, parameters).programs(n, seed)

    def recipe(self, preset: str | None = None, parameters: Mapping[str, object] = {}) -> Recipe:
        """The search of a preset. Raises WorkloadError for a bad preset or parameter."""
        p = resolve(_TOML, self.name, preset or self.default_preset, parameters)
        if "beam" in p.values:
            tree = tot.read_shape(p)
            start, longest = partial(tot.search, tree), tree.longest
        else:
            shape = _shape(p)
            start, longest = partial(search, shape), shape.longest
        return Recipe(self.name, p.where, p.values, p.positive("rate"), start, longest)


def _shape(p: Parameters) -> Shape:
    scale = p.positive("token_scale")
    return Shape(
        iterations=p.count("iterations"),
        samples=p.count("samples"),
        unique=p.number("unique", low=0.0, high=1.0),
        rollout_depth=p.count("rollout_depth", low=0),
        tree_depth=p.count("tree_depth"),
        p_success=p.number("p_success", low=0.0, high=1.0),
        hazard=p.probabilities("hazard"),
        first_prompt=max(1, round(p.positive("first_prompt") * scale)),
        growth=max(1, round(p.positive("growth") * scale)),
        output=p.dist("output").scaled(scale),
        value_output=p.dist("value_output").scaled(scale),
        tool_s=p.dist("tool_s"),
    )


WORKLOAD = Mcts()

"""MCTS with an LLM that proposes, values and reflects: LATS on the game of 24 (control flow: ``tree``).

Proposals of a node are asked for at once, each in the thread of the child that it makes (``n1``, ``n2``,
...); the child's value is asked for in that thread, too, and continues its prompt. Environment feedback on a
step is the task's tool. Reflections have threads of their own and stand in all later prompts.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from workloads.agents.contract import Budget, BudgetUsed, Chat, Script, Task, Told, Toolbox, ToolCall
from workloads.agents.mcts_script import Player
from workloads.agents.tasks.arithmetic import (
    Numbers,
    expression,
    listed,
    ordered,
    parse_numbers,
    parse_step,
)
from workloads.agents.tasks.game24 import LEFT, STEP
from workloads.agents.tree import Knobs, Node, best, search
from workloads.agents.work import Work, together

NEXT = "Say the next step."
RATE = (
    "How likely can the goal still be reached from what is left? Think briefly, and end with "
    "'Score: ' and a whole number from 1 (not at all) to 10 (surely)."
)
REFLECT = (
    "This way failed. Say in two sentences at which step it went wrong, and what to try instead next time."
)
_SHORT, _LONG = 100, 250
"""Most tokens of a proposal or a value, and of a reflection."""


@dataclass
class Mcts:
    """``width``: n, proposals per expansion; ``iterations``: k, trajectories; ``depth``: of the tree;
    ``exploration``: w; ``consistency``: 1 - lambda; ``temperature``: of proposals; ``reflections``: at most.

    n = 5 and w = 1: appendix A; k = 30 (table 7), depth 5 and lambda = .5: appendix D.4; temperature 1 and up
    to 3 reflections: the authors' code. A tree also ends when the budget has no calls for a whole expansion.
    """

    width: int = 5
    iterations: int = 30
    depth: int = 5
    exploration: float = 1.0
    consistency: float = 0.5
    temperature: float = 1.0
    reflections: int = 3
    name: str = field(default="mcts", init=False)
    suites: tuple[str, ...] = field(default=("game24",), init=False)
    needs: tuple[str, ...] = field(default=(), init=False)
    threads: bool = field(default=True, init=False)

    def __post_init__(self) -> None:
        if min(self.width, self.iterations, self.depth) < 1:
            raise ValueError("width, iterations and depth must be at least 1")
        if not 0 <= self.consistency <= 1 or min(self.exploration, self.temperature, self.reflections) < 0:
            raise ValueError("consistency must be from 0 to 1; the others must not be negative")

    def script(self, task: Task, seed: int) -> Script:
        """A player who sees something, but not all. Raises AgentError for a task that is no such game."""
        return Player(task, seed)

    async def run(self, task: Task, chat: Chat, toolbox: Toolbox, budget: Budget, told: Told) -> list[str]:
        """Its answer to each turn: an expression. Raises AgentError."""
        work = Work(chat, toolbox, budget, told)
        return [await self._answer(task, turn, work) for turn in task.turns]

    async def _answer(self, task: Task, turn: str, work: Work) -> str:
        numbers, goal = task.data["numbers"], task.data["goal"]
        game = Game(self, task.system, turn, goal, work)
        root = Node("root", ordered(numbers))
        knobs = Knobs(self.exploration, self.consistency, self.depth, self.iterations)
        try:
            game.notes["trajectories"] = await search(game, root, knobs)
        except OutOfCalls:
            game.notes["trajectories"] = root.visits - 1
        game.notes.update(nodes=sum(1 for _ in root.tree()), solved=best(root).solved)
        work.told.notes.update(game.notes)
        return _said(numbers, best(root))


class OutOfCalls(BudgetUsed):
    """Too few calls are left for the next phase: the search ends with what it has."""


class Game:
    """One search's talk with the model. ``notes``: counts of what came of it."""

    def __init__(self, knobs: Mcts, system: str, turn: str, goal: int, work: Work) -> None:
        self._knobs = knobs
        self._system = system
        self._turn = turn
        self._goal = goal
        self._work = work
        self._proposed = 0
        self._lessons: list[str] = []
        self.notes: dict[str, Any] = {"nonsense": 0, "duplicates": 0, "reflections": 0}

    async def expand(self, node: Node[Numbers]) -> Sequence[Node[Numbers]]:
        """Proposals, asked for at once; one child per state that they lead to."""
        self._afford(self._knobs.width)
        first, self._proposed = self._proposed + 1, self._proposed + self._knobs.width
        proposed = await together(self._propose(node, first + i) for i in range(self._knobs.width))
        useful = [child for child in proposed if child is not None]
        found: dict[Numbers, Node[Numbers]] = {}
        for child in useful:
            kept = found.setdefault(child.state, child)
            kept.share = sum(other.state == child.state for other in useful) / self._knobs.width
        self.notes["nonsense"] += len(proposed) - len(useful)
        self.notes["duplicates"] += len(useful) - len(found)
        return list(found.values())

    async def evaluate(self, nodes: Sequence[Node[Numbers]]) -> Sequence[float]:
        """Scores, asked for at once, each in the thread of its node."""
        self._afford(len(nodes))
        return await together(self._rate(node) for node in nodes)

    async def reflect(self, node: Node[Numbers]) -> None:
        """A lesson for all later calls, as long as there are few."""
        if len(self._lessons) >= self._knobs.reflections or self._work.calls_left < 1:
            return
        thread = f"reflect-{len(self._lessons)}"
        reply = await self._work.ask(self._messages(node, REFLECT), thread=thread, max_tokens=_LONG)
        self._lessons.append(" ".join(reply.text.split()))
        self.notes["reflections"] += 1

    def _afford(self, calls: int) -> None:
        if self._work.calls_left < calls:
            raise OutOfCalls(f"the next phase has {calls} calls, and {self._work.calls_left} are left")

    async def _propose(self, node: Node[Numbers], number: int) -> Node[Numbers] | None:
        """The child that a proposal makes; None if it is no step of what is left."""
        thread = f"n{number}"
        reply = await self._work.ask(
            self._messages(node, NEXT),
            thread=thread,
            max_tokens=_SHORT,
            temperature=self._knobs.temperature,
            seed=number,
        )
        step = parse_step(reply.text)
        said = {"left": listed(node.state), "step": step.text() if step else reply.text}
        observed = await self._work.use(ToolCall(thread, STEP.name, said), thread)
        if step is None or not observed.startswith(LEFT):
            return None
        left = parse_numbers(observed.removeprefix(LEFT))
        solved = left == ordered([self._goal])
        return Node(thread, left, node, reply.text, terminal=len(left) == 1, solved=solved)

    async def _rate(self, node: Node[Numbers]) -> float:
        reply = await self._work.ask(self._messages(node, RATE), thread=node.name, max_tokens=_SHORT)
        return score(reply.text)

    def _messages(self, node: Node[Numbers], ask: str) -> list[dict[str, str]]:
        """The way to a node as a conversation: what was proposed, and what that left."""
        root, *way = node.path()
        lessons = "".join(f"\nAn earlier try failed: {lesson}" for lesson in self._lessons)
        said = f"{self._turn}{lessons}\n{LEFT} {listed(root.state)}"
        messages = [{"role": "system", "content": self._system}]
        for step in way:
            messages += [_user(f"{said}\n{NEXT}"), {"role": "assistant", "content": step.said}]
            said = f"{LEFT} {listed(step.state)}"
        return [*messages, _user(f"{said}\n{ask}")]


def _user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def score(text: str) -> float:
    """The score that a reply ends with, 1 to 10 as .1 to 1; 0 where there is none."""
    found = re.findall(r"score\D{0,10}(\d+)", text, re.IGNORECASE) or re.findall(r"\d+", text)
    return min(10, int(found[-1][:3])) / 10 if found else 0.0


def _said(numbers: Sequence[int], node: Node[Numbers]) -> str:
    """The steps to a node as an answer; one that is not solved says what it came to."""
    path = node.path()[1:]
    steps = [step for step in (parse_step(passed.said) for passed in path) if step is not None]
    if len(node.state) > 1:
        return f"No solution found; tried: {', '.join(step.text() for step in steps) or 'nothing'}"
    return f"{expression(numbers, steps)} = {listed(node.state)}"


AGENT = Mcts()

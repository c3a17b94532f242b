"""The game of 24: four numbers from 1 to 13, each used once, must give 24 by + - * / (Yao et al. 2023,
"Tree of Thoughts", section 4.1; LATS, arXiv 2310.04406, section 5.4 and appendix D.4).

Every hand of four can be drawn that has a solution (1 362 of 1 820), in a seeded order. Arithmetic is exact.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations_with_replacement, count
from pathlib import Path
from random import Random
from typing import Any

from workloads.agents.contract import Action, Task, Toolbox, ToolSpec, Verdict
from workloads.agents.tasks.arithmetic import (
    Step,
    after,
    evaluate,
    expression,
    listed,
    ordered,
    parse_numbers,
    parse_step,
    plain,
    reachable,
    solve,
)
from workloads.keys import key_of
from workloads.parameters import nearest
from workloads.sandboxes.contract import Sandbox

GOAL = 24
SYSTEM = (
    "You play the game of 24. Take two of the numbers that are left, and put what + - * or / gives in their "
    "place; go on until one number is left, which must be 24. Every number is used exactly once. Say a step "
    "as 'a * b = c'."
)
LEFT = "left:"
"""What the tool's answer to a step that is right begins with; numbers follow."""
STEP = ToolSpec(
    "step",
    "Do one step: two of the numbers that are left become one. Says what is left then.",
    {
        "type": "object",
        "properties": {
            "left": {"type": "string", "description": "the numbers that are left, such as '4 6 8 8'"},
            "step": {"type": "string", "description": "such as '6 * 8'"},
        },
        "required": ["left", "step"],
    },
)


class Slate:
    """The tool of the game; it keeps nothing, so that a search may go back to any state."""

    specs: Sequence[ToolSpec] = (STEP,)

    async def call(self, name: str, arguments: Mapping[str, Any]) -> str:
        """``left: ...``, or what was wrong."""
        if name != STEP.name:
            return f"error: there is no tool {name!r}: {nearest(name, [STEP.name])}"
        left, said = arguments.get("left"), arguments.get("step")
        if not isinstance(left, str) or not isinstance(said, str):
            return "error: step needs left (numbers) and step (such as '6 * 8'), both text"
        step = parse_step(said)
        if step is None:
            return f"error: {said[:60]!r} is no step such as '6 * 8'"
        then = after(parse_numbers(left), step)
        return f"error: {then}" if isinstance(then, str) else f"{LEFT} {listed(then)}"


@dataclass
class Game24Task:
    """One hand. ``data``: ``numbers`` and ``goal``. Solved by an expression that uses each number once."""

    name: str
    turns: Sequence[str]
    solution: Sequence[Sequence[Action]]
    data: Mapping[str, Any]
    system: str = SYSTEM
    files: Mapping[str, str] = field(default_factory=dict)

    def toolbox(self, sandbox: Sandbox | None) -> Toolbox:
        """A slate."""
        del sandbox
        return Slate()

    async def check(self, toolbox: Toolbox, answers: Sequence[str]) -> Verdict:
        """By the last expression in the last answer."""
        del toolbox
        said = _expression(answers[-1] if answers else "")
        try:
            value, used = evaluate(said)
        except ValueError as error:
            return Verdict(False, f"answered {said[:60]!r}: {error}")
        if used != sorted(self.data["numbers"]):
            return Verdict(False, f"{said} does not use {self.data['numbers']} once each")
        return Verdict(value == self.data["goal"], "" if value == self.data["goal"] else f"{said} is {value}")


_VALUE = re.compile(r"=\s*-?\d+(?:[./]\d+)?(?![\d./]|\s*[-+*/(])")
"""What an equals sign says of an expression before it."""


def _expression(answer: str) -> str:
    """The last run of numbers, signs and parentheses; what follows an equals sign is its value."""
    ending = _VALUE.sub(" ", plain(answer[-500:]))
    runs = re.findall(r"[\d(][\d\s()+*/-]*[\d)]", ending)
    return next((run.strip() for run in reversed(runs) if re.search("[-+*/]", run)), ending.strip())


class Game24:
    """All hands with a solution, in an order drawn from the seed; round again after 1 362."""

    name = "game24"
    needs_sandbox = False

    def missing(self, data: Path | None) -> str:
        """Nothing is."""
        del data
        return ""

    def tasks(self, n: int, seed: int, data: Path | None) -> list[Task]:
        """The first ``n`` of the seed's order."""
        del data
        dealt = _hands(seed)
        return [_task(*next(dealt)) for _ in range(n)]


def _hands(seed: int) -> Iterator[tuple[tuple[int, ...], int]]:
    """Hands with a solution, and how often all of them were dealt before."""
    hands = list(combinations_with_replacement(range(1, 14), 4))
    Random(key_of("game24", seed)).shuffle(hands)
    for again in count():
        yield from ((hand, again) for hand in hands if reachable(ordered(hand), GOAL))


def _task(hand: tuple[int, ...], again: int) -> Game24Task:
    path = solve(ordered(hand), GOAL)
    shown = listed(ordered(hand))
    return Game24Task(
        "-".join(["game24", *map(str, hand)]) + (f"-again{again}" if again else ""),
        turns=(f"The numbers are {shown}. Make 24. End with the whole expression.",),
        solution=(_solution(hand, path),),
        data={"numbers": list(hand), "goal": GOAL},
    )


def _solution(hand: Sequence[int], path: Sequence[Step]) -> tuple[Action, ...]:
    left, actions = ordered(hand), []
    for step in path:
        said = {"left": listed(left), "step": step.text()}
        actions.append(Action(f"I take {step.text()}.", ((STEP.name, said),)))
        then = after(left, step)
        assert not isinstance(then, str)
        left = then
    return (*actions, Action(f"{expression(hand, path)} = {GOAL}"))


SUITE = Game24()

"""Who answers a tree search in the model's place: a player of the game of 24 who sees something, not all.

A pure function of (seed, task, thread) and of what is left by the call's own text: it proposes a step that
keeps the goal in reach with probability ``SEES`` where there is one, else any step, sometimes nonsense, and
rates a state near ``HIGH`` or ``LOW`` by whether the goal is in reach, with noise. So trees branch, fail,
go back, and some games are lost.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from workloads.agents.contract import AgentError, Task, Turn
from workloads.agents.scripts import lengthened
from workloads.agents.tasks.arithmetic import Numbers, listed, parse_numbers, reachable, result, show, steps
from workloads.agents.tasks.game24 import LEFT
from workloads.keys import key_of
from workloads.random_streams import Stream, parse_dist, stream

SEES = 0.2
NONSENSE = 0.05
HIGH, LOW, NOISE = 7.0, 3.5, 2.0
"""Mean scores of states from which the goal can and cannot be reached, and the standard deviation of both."""
PROPOSAL = parse_dist(
    {"dist": "lognormal", "mu": 3.71, "sigma": 0.17, "min": 1, "max": 100},
    "workloads.agents.mcts_script: PROPOSAL",
)
"""Tokens of a proposal: those of the workload ``mcts:lats``, calibrated on LATS (mean 41)."""
VALUE = parse_dist(
    {"dist": "lognormal", "mu": 3.2, "sigma": 0.3, "min": 1, "max": 100},
    "workloads.agents.mcts_script: VALUE",
)
"""Tokens of a value (mean 26): ours, for a thought and a score; LATS allows 100."""
REFLECTION = parse_dist(
    {"dist": "lognormal", "mu": 4.1, "sigma": 0.3, "min": 1, "max": 250},
    "workloads.agents.mcts_script: REFLECTION",
)
"""Tokens of a reflection (mean 63): ours."""


class Player:
    """Raises AgentError for a task that has no numbers and goal."""

    def __init__(self, task: Task, seed: int) -> None:
        if not {"numbers", "goal"} <= set(task.data):
            raise AgentError(f"{task.name}: its data has no numbers and goal, so there is no script for it")
        self._goal = int(task.data["goal"])
        self._who = (seed, task.name)

    def turn(self, thread: str, index: int, asked: Mapping[str, Any]) -> Turn:
        """A proposal, a value or a reflection. Raises AgentError in a thread of another name."""
        left = _left(asked)
        draws = stream(key_of(*self._who, thread, index), "said")
        if re.fullmatch(r"n\d+", thread) and index < 2:
            said = self._proposed(left, draws) if index == 0 else self._rated(left, draws)
            law = PROPOSAL if index == 0 else VALUE
        elif re.fullmatch(r"reflect-\d+", thread) and index == 0:
            said, law = f"It ended with {listed(left)}. Next time I begin with another pair.", REFLECTION
        else:
            raise AgentError(f"the script of {self._who[1]} has nothing for call {index} of thread {thread}")
        return lengthened(Turn(said), law, asked, *self._who, thread, index)

    def _proposed(self, left: Numbers, draws: Stream) -> str:
        nonsense, sees = draws.bernoulli(NONSENSE), draws.bernoulli(SEES)
        if nonsense or len(left) < 2:
            return "I would add all of them up first."
        good = [step for step, then in steps(left) if reachable(then, self._goal)]
        step = draws.choice(good if sees and good else [step for step, _ in steps(left)])
        got = result(step)
        assert got is not None, "steps() lists none that divides by 0"
        return f"{step.text()} = {show(got)}"

    def _rated(self, left: Numbers, draws: Stream) -> str:
        mean = HIGH if reachable(left, self._goal) else LOW
        rated = min(10, max(1, round(draws.normal(mean, NOISE))))
        return f"With {listed(left)} left. Score: {rated}"


def _left(asked: Mapping[str, Any]) -> Numbers:
    """What is left by the last message that says so."""
    for message in reversed(asked["messages"]):
        if found := re.findall(rf"^{LEFT} (.*)$", str(message["content"]), re.MULTILINE):
            return parse_numbers(found[-1])
    raise AgentError("the call does not say what is left")

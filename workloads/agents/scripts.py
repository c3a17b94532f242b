"""Scripts made of solutions that are known: what a program's calls are answered in the model's place.

The content of a reply is its solution's. Its length is drawn from a seeded distribution, since an engine with
random weights decodes for it and lengths are what costs: never shorter than the text and tool calls would be,
at ``CHARACTERS`` to a token, and never longer than the caller allows.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from workloads.agents.contract import MAIN, Action, AgentError, Task, ToolCall, Turn
from workloads.keys import key_of
from workloads.random_streams import Dist, parse_dist, stream

CHARACTERS = 4
"""Of a token, roughly, in English and code."""
ACTION = parse_dist(
    {"dist": "lognormal", "mu": 3.37, "sigma": 0.56, "min": 1, "max": 600}, "workloads.agents.scripts: ACTION"
)
"""Tokens of a step with tools: the preset ``react:bfcl``, which has Autellix's mean of 34 (section 5)."""


def lengthened(said: Turn, law: Dist, asked: Mapping[str, Any], *who: int | str) -> Turn:
    """``said`` with output tokens drawn from ``law`` for ``who`` (seed, task, thread, index)."""
    drawn = law.tokens(stream(key_of(*who), "output"))
    return said._replace(output_tokens=min(max(drawn, floor(said)), _allowed(asked)))


def floor(said: Turn) -> int:
    """The least tokens that a reply's text and tool calls take."""
    calls = sum(len(call.name) + len(json.dumps(dict(call.arguments))) for call in said.tool_calls)
    return max(1, -(-(len(said.text) + calls) // CHARACTERS))


def _allowed(asked: Mapping[str, Any]) -> int:
    """The caller's own limit, in any of the dialects."""
    limits = (asked.get(name) for name in ("max_tokens", "max_completion_tokens", "max_output_tokens"))
    return min((limit for limit in limits if isinstance(limit, int) and limit > 0), default=1 << 30)


def spoken(action: Action, index: int) -> Turn:
    """An action as the reply to call ``index``: tool calls get ids of their own."""
    calls = (
        ToolCall(f"call_{index}_{i}", name, arguments) for i, (name, arguments) in enumerate(action.calls)
    )
    return Turn(action.text, tuple(calls))


class Dialogue:
    """A solution in the native tool-calling dialogue of one thread: call i is answered by action i.

    Raises AgentError if the solution is none: an answer in the middle of a turn, or none at its end.
    """

    def __init__(self, task: Task, seed: int, law: Dist = ACTION) -> None:
        self._name = task.name
        self._seed = seed
        self._law = law
        self._actions = tuple(_checked(task))

    def turn(self, thread: str, index: int, asked: Mapping[str, Any]) -> Turn:
        """The action number ``index``. Raises AgentError past the end, or in another thread."""
        if thread != MAIN or not 0 <= index < len(self._actions):
            raise AgentError(
                f"the script of {self._name} has {len(self._actions)} replies in thread {MAIN}; "
                f"call {index} of {thread} is none of them"
            )
        return lengthened(
            spoken(self._actions[index], index), self._law, asked, self._seed, self._name, thread, index
        )


def _checked(task: Task) -> list[Action]:
    if len(task.solution) != len(task.turns):
        raise AgentError(f"{task.name}: solutions of {len(task.solution)} turns for {len(task.turns)}")
    for i, actions in enumerate(task.solution):
        if not actions or actions[-1].calls or not all(action.calls for action in actions[:-1]):
            raise AgentError(f"{task.name}: the solution of turn {i} must be tool calls, then one answer")
    return [action for actions in task.solution for action in actions]

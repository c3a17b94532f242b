"""BFCL v4, multi_turn_base: 200 tasks of several user turns (docs/agent-tasks.md).

BFCL is the Berkeley Function Calling Leaderboard. The data is its own and is not here; the tools are ours,
written from its function docs (``bfcl_tools``).
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from workloads.agents.contract import Action, AgentError, Suite, Task, Toolbox, ToolSpec, Verdict
from workloads.agents.tasks.arguments import wrong_arguments
from workloads.agents.tasks.bfcl_tools.base import ToolError
from workloads.agents.tasks.bfcl_tools.calls import TrueCall, parse_call
from workloads.agents.tasks.bfcl_tools.checker import Step, why_wrong
from workloads.agents.tasks.bfcl_tools.functions import (
    CLASSES,
    DOCS,
    Functions,
    read_functions,
)
from workloads.base import WorkloadError
from workloads.sandboxes.contract import Sandbox

QUESTIONS = "BFCL_v4_multi_turn_base.json"
ANSWERS = f"possible_answer/{QUESTIONS}"
SOURCE = (
    "the data of the Berkeley Function Calling Leaderboard v4 (ShishirPatil/gorilla on GitHub, folder "
    "berkeley-function-call-leaderboard/bfcl_eval/data, commit 6ea5797, Apache-2.0)"
)
SYSTEM = (
    "You do what the user asks by calling tools. Use values that the user or an earlier result gave you; do "
    "not make any up. If a call fails, read why and try to put it right. Do nothing that was not asked for. "
    "When a request is done, answer in a sentence or two without calling a tool."
)


class BfclToolbox:
    """The functions of a task's classes, on instances of their own. ``steps``: what was called so far."""

    def __init__(self, functions: Mapping[str, Functions], config: Mapping[str, Any]) -> None:
        self._tools = {name: CLASSES[name].make(config.get(name, {})) for name in functions}
        self._class_of = {function: name for name, some in functions.items() for function in some}
        self._specs = {spec.name: spec for some in functions.values() for spec in some.values()}
        self.specs: Sequence[ToolSpec] = list(self._specs.values())
        self.start = self._state()
        self.steps: list[Step] = []

    async def call(self, name: str, arguments: Mapping[str, Any]) -> str:
        """A JSON object: the result, or ``error``."""
        return json.dumps(self.do(name, arguments), ensure_ascii=False)

    def do(self, name: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """The same as an object."""
        try:
            result = self._result(name, arguments)
        except ToolError as error:
            result = {"error": str(error)}
        self.steps.append(Step(name, result, self._state()))
        return result

    def _result(self, name: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        if name not in self._specs:
            raise ToolError(f"there is no tool '{name}'; there are {', '.join(self._specs)}")
        if wrong := wrong_arguments(self._specs[name], arguments):
            raise ToolError(wrong)
        function = getattr(self._tools[self._class_of[name]], name)
        try:
            result: Mapping[str, Any] = function(**arguments)
        except ArithmeticError as error:
            raise ToolError(f"{name} cannot compute that: {error}") from error
        return deepcopy(result)  # or a later call would change what an earlier one answered

    def _state(self) -> dict[str, dict[str, Any]]:
        return {name: tools.state() for name, tools in self._tools.items()}


@dataclass
class BfclTask:
    """One entry of the data. ``functions``: those it may use, by class; ``truth``: calls by turn."""

    name: str
    turns: Sequence[str]
    config: Mapping[str, Any]
    functions: Mapping[str, Functions]
    truth: Sequence[Sequence[TrueCall]]
    system: str = SYSTEM
    files: Mapping[str, str] = field(default_factory=dict)
    data: Mapping[str, Any] = field(default_factory=dict)
    solution: Sequence[Sequence[Action]] = ()

    def __post_init__(self) -> None:
        """The solution is the ground truth, a call at a time."""
        self.solution = [[*(Action("", (call,)) for call in calls), _answer(calls)] for calls in self.truth]

    def toolbox(self, sandbox: Sandbox | None = None) -> BfclToolbox:  # noqa: ARG002
        """Fresh instances; they need no sandbox."""
        return BfclToolbox(self.functions, self.config)

    def true_steps(self) -> list[list[Step]]:
        """What the ground truth's calls answer and leave, by turn."""
        box = self.toolbox()
        done = [[box.do(*call) for call in calls] for calls in self.truth]
        steps = iter(box.steps)
        return [[next(steps) for _ in results] for results in done]

    async def check(self, toolbox: Toolbox, answers: Sequence[str]) -> Verdict:
        """By the state and the results that the calls left, turn by turn; what was said does not count."""
        if not isinstance(toolbox, BfclToolbox):
            raise AgentError(f"{self.name}: checked with tools that are not its own")
        if len(answers) < len(self.turns):
            return Verdict(False, f"answered {len(answers)} of {len(self.turns)} turns")
        why = why_wrong(toolbox.start, toolbox.steps, self.true_steps())
        return Verdict(not why, why)


class Bfcl:
    """The suite. ``data``/bfcl holds BFCL's files under its own names."""

    name = "bfcl"
    needs_sandbox = False

    def missing(self, data: Path | None) -> str:
        """Which file is not there, and where all of them come from."""
        if data is None:
            return f"name a folder of data sets (-p data=DIR) that holds bfcl/: {SOURCE}"
        wanted = [QUESTIONS, ANSWERS, *(f"{DOCS}/{kind.docs}" for kind in CLASSES.values())]
        absent = [name for name in wanted if not (data / "bfcl" / name).is_file()]
        return f"{data / 'bfcl' / absent[0]} is not there; it is part of {SOURCE}" if absent else ""

    def tasks(self, n: int, seed: int, data: Path | None) -> list[Task]:
        """Raises WorkloadError for data that is missing or not BFCL's."""
        if why := self.missing(data):
            raise WorkloadError(why)
        assert data is not None
        found = read_tasks(data / "bfcl")
        order = random.Random(seed).sample(range(len(found)), len(found))
        picked: list[Task] = []
        for index in range(n):
            task, lap = found[order[index % len(found)]], index // len(found)
            picked.append(replace(task, name=f"{task.name}.{lap + 1}") if lap else task)
        return picked


def read_tasks(folder: Path) -> list[BfclTask]:
    """All tasks in the data's order. Raises WorkloadError naming the file, the line, what is wrong there."""
    functions = read_functions(folder)
    questions, answers = _lines(folder / QUESTIONS), _lines(folder / ANSWERS)
    if len(questions) != len(answers):
        raise WorkloadError(
            f"{QUESTIONS} has {len(questions)} lines, {ANSWERS} {len(answers)}: one each a task"
        )
    tasks = []
    for number, (question, answer) in enumerate(zip(questions, answers, strict=True), 1):
        try:
            tasks.append(_task(question, answer, functions))
        except (ValueError, KeyError, TypeError) as error:
            raise WorkloadError(f"{folder.name}/{QUESTIONS}:{number}: no task of BFCL: {error!r}") from error
    return tasks


def _lines(path: Path) -> list[Any]:
    found = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        try:
            found.append(json.loads(line))
        except ValueError as error:
            raise WorkloadError(f"{path}:{number}: not a line of JSON ({error})") from error
    return found


def _task(
    question: Mapping[str, Any], answer: Mapping[str, Any], functions: Mapping[str, Functions]
) -> BfclTask:
    if question["id"] != answer["id"]:
        raise ValueError(f"the answer is that of {answer['id']!r}, the question that of {question['id']!r}")
    excluded = question.get("excluded_function", ())
    allowed = {
        name: {key: spec for key, spec in functions[name].items() if key not in excluded}
        for name in question["involved_classes"]
    }
    flat = {key: spec for some in allowed.values() for key, spec in some.items()}
    truth = [[parse_call(text, flat) for text in calls] for calls in answer["ground_truth"]]
    turns = ["\n".join(message["content"] for message in turn) for turn in question["question"]]
    if len(turns) != len(truth):
        raise ValueError(f"{len(turns)} turns, {len(truth)} in the ground truth")
    return BfclTask(question["id"], turns, question["initial_config"], allowed, truth)


def _answer(calls: Sequence[TrueCall]) -> Action:
    if not calls:
        return Action("There is nothing that I could do for this with my tools.")
    return Action(f"Done, with {', '.join(dict.fromkeys(call.name for call in calls))}.")


SUITE: Suite = Bfcl()

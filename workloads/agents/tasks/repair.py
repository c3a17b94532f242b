"""Small repositories with one bug each (docs/agent-tasks.md). They are in ``repair_data``, a file each.

A file has ``kind`` (of bug), ``issue`` (what the user says), ``files`` (text by path), ``hidden`` (tests that
the agent does not see), ``solution`` (steps: what is said beside tool calls, and the calls) and ``answer``.
"""

from __future__ import annotations

import random
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from workloads.agents.contract import Action, AgentError, Suite, Task, Toolbox, Verdict
from workloads.agents.tasks.arguments import wrong_arguments
from workloads.agents.tasks.repair_check import why_failed
from workloads.agents.tasks.repair_tools import SPECS, RepairToolbox
from workloads.base import WorkloadError
from workloads.sandboxes.contract import Sandbox

FOLDER = Path(__file__).parent / "repair_data"
FIELDS = {"kind", "issue", "answer", "hidden", "files", "solution"}
SYSTEM = (
    "You repair a small Python repository, which is the working directory of your tools. Look at the code, "
    "run its tests, change as little as possible, and run the tests again. Do not change the tests. Other "
    "tests, which you do not see, are run in the end. When you are done, say in a sentence what was wrong."
)


@dataclass
class RepairTask:
    """One repository. ``hidden``: the text of its hidden tests; ``data``: what kind of bug it is."""

    name: str
    turns: Sequence[str]
    files: Mapping[str, str]
    hidden: str
    solution: Sequence[Sequence[Action]]
    data: Mapping[str, Any] = field(default_factory=dict)
    system: str = SYSTEM

    def toolbox(self, sandbox: Sandbox | None) -> RepairToolbox:
        """Raises AgentError without a sandbox."""
        if sandbox is None:
            raise AgentError(f"{self.name}: the tools of repair need a sandbox")
        return RepairToolbox(sandbox)

    async def check(self, toolbox: Toolbox, answers: Sequence[str]) -> Verdict:
        """Runs the hidden tests: all of them ran, and all passed. What the agent left running is ended.

        Raises SandboxError if the sandbox is gone.
        """
        if not isinstance(toolbox, RepairToolbox):
            raise AgentError(f"{self.name}: checked with tools that are not its own")
        if not answers:
            return Verdict(False, "no answer")
        why = await why_failed(toolbox.sandbox, self.hidden)
        return Verdict(not why, why)


class Repair:
    """The suite."""

    name = "repair"
    needs_sandbox = True

    def missing(self, data: Path | None) -> str:  # noqa: ARG002
        """Nothing: the repositories are part of the package."""
        return "" if names() else f"the package is incomplete: no repositories in {FOLDER}"

    def tasks(self, n: int, seed: int, data: Path | None) -> list[Task]:  # noqa: ARG002
        """Raises WorkloadError for a file that is none of ours."""
        order = random.Random(seed).sample(names(), len(names()))
        picked: list[Task] = []
        for index in range(n):
            task, lap = read_task(order[index % len(order)]), index // len(order)
            picked.append(replace(task, name=f"{task.name}.{lap + 1}") if lap else task)
        return picked


@cache
def names() -> tuple[str, ...]:
    """Of all repositories, sorted."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.toml")))


@cache
def read_task(name: str) -> RepairTask:
    """One of ``names``. Raises WorkloadError naming the file and the field."""
    path = FOLDER / f"{name}.toml"
    try:
        said = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise WorkloadError(f"{path.name}: cannot be read: {error}") from error
    return parse_task(name, said)


def parse_task(name: str, said: Mapping[str, Any]) -> RepairTask:
    """Raises WorkloadError naming the file and the field."""
    if set(said) != FIELDS:
        odd = ", ".join(sorted(FIELDS ^ set(said)))
        raise WorkloadError(f"{name}.toml: wants the fields {', '.join(sorted(FIELDS))}; look at {odd}")
    steps = [_action(f"{name}.toml: solution {i}", step) for i, step in enumerate(said["solution"])]
    solution = [[*steps, Action(said["answer"])]]
    data = {"kind": said["kind"]}
    return RepairTask(name, [said["issue"].strip()], said["files"], said["hidden"], solution, data)


def _action(where: str, step: Mapping[str, Any]) -> Action:
    calls = tuple((name, value) for name, value in step.items() if name != "say")
    specs = {spec.name: spec for spec in SPECS}
    for name, arguments in calls:
        if name not in specs:
            raise WorkloadError(f"{where}: no tool '{name}'; there are say and {', '.join(specs)}")
        if wrong := wrong_arguments(specs[name], arguments):
            raise WorkloadError(f"{where}: {wrong}")
    if not calls:
        raise WorkloadError(f"{where}: no tool is called")
    return Action(step.get("say", ""), calls)


SUITE: Suite = Repair()

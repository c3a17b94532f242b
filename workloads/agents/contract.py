"""Agents that decide, their tasks and tools: what each part offers to the others (docs/agents.md).

An agent runs a task: it asks an LLM through a ``Chat``, and uses the tools of a ``Toolbox``. Whether a real
model answers, or a script in its place while an engine does the work (``workloads.agents.relay``), is nothing
that an agent knows. One file per agent with a module-level ``AGENT`` (this folder, ``guests/``), per set of
tasks with a module-level ``SUITE`` (``tasks/``): both are found by scanning.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from workloads.sandboxes.contract import Sandbox

MAIN = "main"
"""The thread of an agent that has one."""


class AgentError(RuntimeError):
    """A program came to nothing that is no wrong answer: which, why."""


class BudgetUsed(AgentError):
    """It had more to do than its budget allows: which part of the budget, how much that is."""


class ToolSpec(NamedTuple):
    """A tool as the model is told of it; ``parameters``: a JSON schema of type object."""

    name: str
    description: str
    parameters: Mapping[str, Any]

    def openai(self) -> dict[str, Any]:
        """As ``tools`` of /v1/chat/completions has it."""
        function = {"name": self.name, "description": self.description, "parameters": dict(self.parameters)}
        return {"type": "function", "function": function}


class ToolCall(NamedTuple):
    """The model wants a tool; ``id`` is unique in its conversation."""

    id: str
    name: str
    arguments: Mapping[str, Any]


class Reply(NamedTuple):
    """What an LLM answered. Tokens as the engine counted them; ``cached_tokens`` -1: it did not say."""

    text: str
    tool_calls: tuple[ToolCall, ...] = ()
    prompt_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = -1


class Chat(Protocol):
    """An LLM for one program. ``url``: base URL of thread ``MAIN``, ends in /v1, for agents with a client of
    their own. ``model``: the name to ask for; ``key``: what to authorise with."""

    url: str
    model: str
    key: str

    def url_of(self, thread: str) -> str:
        """Base URL under which calls are of this thread."""

    async def ask(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[ToolSpec] = (),
        *,
        thread: str = MAIN,
        max_tokens: int = 1024,
        temperature: float = 0.0,
        seed: int | None = None,
    ) -> Reply:
        """One call; messages in OpenAI's form. Raises AgentError naming the call if it is refused or lost."""


class Toolbox(Protocol):
    """The tools of one program. A tool's failure is text for the model, not an exception."""

    specs: Sequence[ToolSpec]

    async def call(self, name: str, arguments: Mapping[str, Any]) -> str:
        """What the tool says; of an unknown tool or wrong arguments, what was wrong."""


class Verdict(NamedTuple):
    """Whether the task was solved, and why not, in a line."""

    success: bool
    why: str = ""


class Action(NamedTuple):
    """A step of a solution that is known: tools to call at once, or (no tools) what to answer.

    ``calls``: (tool's name, arguments). ``text`` is said beside tool calls, or is the answer.
    """

    text: str = ""
    calls: tuple[tuple[str, Mapping[str, Any]], ...] = ()


class Task(Protocol):
    """One thing to be done. Everything but ``toolbox`` and ``check`` is plain data.

    ``turns``: what the user says, one after the other, each when the agent has answered the one before.
    ``files``: in the sandbox's workspace from the start. ``solution``: for each user turn the actions that
    solve it, the last of each an answer. ``data``: what only some agents need (documents, numbers).
    """

    name: str
    system: str
    turns: Sequence[str]
    files: Mapping[str, str]
    solution: Sequence[Sequence[Action]]
    data: Mapping[str, Any]

    def toolbox(self, sandbox: Sandbox | None) -> Toolbox:
        """Fresh tools; ``sandbox`` is there if the suite needs one."""

    async def check(self, toolbox: Toolbox, answers: Sequence[str]) -> Verdict:
        """After the run: ``answers`` to the turns; by the state that tools left, where there is one."""


class Suite(Protocol):
    """A set of tasks. ``needs_sandbox``: its tools run in one."""

    name: str
    needs_sandbox: bool

    def missing(self, data: Path | None) -> str:
        """Why there are no tasks here (data that is not there), and where to get it; "" if there are."""

    def tasks(self, n: int, seed: int, data: Path | None) -> list[Task]:
        """``n`` tasks in a seeded order, again from the first when there are fewer (names stay unique)."""


class Turn(NamedTuple):
    """What a script answers in the model's place; the engine decodes ``output_tokens`` tokens for it."""

    text: str
    tool_calls: tuple[ToolCall, ...] = ()
    output_tokens: int = 1


class Script(Protocol):
    """What a program's calls are answered. A pure function: the same call gets the same turn."""

    def turn(self, thread: str, index: int, asked: Mapping[str, Any]) -> Turn:
        """The call number ``index`` (from 0) of ``thread``; ``asked``: its body, in its dialect.

        Raises AgentError if the script has nothing for it: the agent does what its script does not know.
        """


@dataclass(frozen=True)
class Budget:
    """What one program may use. ``calls`` to the LLM; ``seconds``; ``tool_s``: of one tool call."""

    calls: int = 100
    seconds: float = 600.0
    tool_s: float = 30.0


@dataclass
class Told:
    """What an agent says while it runs; the host passes it on."""

    tool: Callable[[str, str, float, float, bool], None] = lambda *_: None
    """(thread, tool, begin, end, ok): a tool ran; times of CLOCK_MONOTONIC (s)."""
    notes: dict[str, Any] = field(default_factory=dict)


class Agent(Protocol):
    """A loop. ``suites``: names of those that it can do, the default first. ``needs``: modules (of the extra
    ``agents``) that it imports; ``threads``: whether it calls under other threads than ``MAIN``.

    Its toolbox has ``sandbox``, too (None if the suite needs none). It may have ``any_suite = True`` (it does
    what tools can do, so any suite will do), ``environment(folder)`` (variables for its ``needs``) and
    ``warm()`` (what is no program's time); docs/agent-host.md."""

    name: str
    suites: tuple[str, ...]
    needs: tuple[str, ...]
    threads: bool

    def script(self, task: Task, seed: int) -> Script:
        """The task's solution in this agent's own dialogue; lengths of replies are drawn from ``seed``."""

    async def run(self, task: Task, chat: Chat, toolbox: Toolbox, budget: Budget, told: Told) -> list[str]:
        """Its answers to the task's turns. Raises AgentError (budget used up, a call that failed)."""

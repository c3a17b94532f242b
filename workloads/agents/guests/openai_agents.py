"""openai-agents as a guest: its own runner and model clients; its function tools are our toolbox.

Nothing of it is patched; its tracing, which would report to its maker, is off. ``api``: the API it speaks,
``chat`` or ``responses``. With ``handoff`` it is two agents: the one that is asked has no tools and hands the
conversation to the other, which asks in a thread of its own.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from workloads.agents.contract import (
    MAIN,
    AgentError,
    Budget,
    BudgetUsed,
    Chat,
    Script,
    Task,
    Told,
    Toolbox,
    ToolCall,
    ToolSpec,
    Turn,
)
from workloads.agents.scripts import ACTION, Dialogue, lengthened

WORKER = "worker"
"""The agent, and its thread, that a conversation is handed to."""
HANDOFF = f"transfer_to_{WORKER}"
"""How the runner names the tool that does it."""
APIS = ("chat", "responses")


@dataclass(frozen=True)
class OpenAiAgents:
    """openai-agents' ``Runner`` over the tools of the task; several at once if the model wants that."""

    api: str = "chat"
    handoff: bool = False
    name: str = field(default="openai-agents", init=False)
    suites: tuple[str, ...] = field(default=("bfcl", "repair"), init=False)
    needs: tuple[str, ...] = field(default=("agents", "openai"), init=False)

    def __post_init__(self) -> None:
        if self.api not in APIS:
            raise ValueError(f"api must be one of {', '.join(APIS)}, got {self.api!r}")

    @property
    def threads(self) -> bool:
        """Whether there is a second agent."""
        return self.handoff

    def environment(self, _: Path) -> dict[str, str]:
        """Nothing is reported to anybody."""
        return {"OPENAI_AGENTS_DISABLE_TRACING": "1"}

    def script(self, task: Task, seed: int) -> Script:
        """The task's solution, an action per call."""
        dialogue = Dialogue(task, seed)
        return HandedOver(dialogue, task, seed) if self.handoff else dialogue

    async def run(self, task: Task, chat: Chat, toolbox: Toolbox, budget: Budget, told: Told) -> list[str]:
        """Its answers to the task's turns. Raises AgentError."""
        import openai
        from agents.exceptions import AgentsException, MaxTurnsExceeded

        try:
            async with _clients(chat, budget) as client:
                return await self._converse(
                    task, self._agent(task, chat, toolbox, client, told), budget, told
                )
        except MaxTurnsExceeded:
            raise BudgetUsed(f"its budget of {budget.calls} calls is used up") from None
        except (openai.APIError, AgentsException) as error:
            raise AgentError(f"{type(error).__name__}: {' '.join(str(error).split())}") from error

    async def _converse(self, task: Task, agent: Any, budget: Budget, told: Told) -> list[str]:
        """Each turn continues the conversation, with the agent that has it."""
        from agents import RunConfig, Runner

        history: list[Any] = []
        answers: list[str] = []
        left = budget.calls
        for said in task.turns:
            if left < 1:
                raise BudgetUsed(f"its budget of {budget.calls} calls is used up")
            result = await Runner.run(
                agent, [*history, {"role": "user", "content": said}], max_turns=left,
                run_config=RunConfig(tracing_disabled=True),
            )  # fmt: skip
            history, agent = result.to_input_list(), result.last_agent
            left -= len(result.raw_responses)
            told.notes.update(calls=budget.calls - left, agent=agent.name)
            answers.append(str(result.final_output))
        return answers

    def _agent(
        self, task: Task, chat: Chat, toolbox: Toolbox, client: Callable[[str], Any], told: Told
    ) -> Any:
        """The one that is asked first."""
        from agents import Agent, ModelSettings

        def agent(name: str, thread: str, **more: Any) -> Any:
            return Agent(
                name=name, instructions=task.system or None, model=self._model(chat.model, client(thread)),
                model_settings=ModelSettings(temperature=0.0), **more,
            )  # fmt: skip

        def tools(thread: str) -> list[Any]:
            return [_tool(spec, use(toolbox, spec.name, thread, told)) for spec in toolbox.specs]

        if not self.handoff:
            return agent("agent", MAIN, tools=tools(MAIN))
        return agent("desk", MAIN, handoffs=[agent(WORKER, WORKER, tools=tools(WORKER))])

    def _model(self, name: str, client: Any) -> Any:
        from agents import OpenAIChatCompletionsModel, OpenAIResponsesModel

        kind = OpenAIChatCompletionsModel if self.api == "chat" else OpenAIResponsesModel
        return kind(model=name, openai_client=client)


class HandedOver:
    """The dialogue of the second agent, after the first one's only call."""

    def __init__(self, dialogue: Dialogue, task: Task, seed: int) -> None:
        self._dialogue = dialogue
        self._name = task.name
        self._seed = seed

    def turn(self, thread: str, index: int, asked: Mapping[str, Any]) -> Turn:
        """Raises AgentError for a call that neither of them has."""
        if thread == WORKER:
            return self._dialogue.turn(MAIN, index, asked)
        if (thread, index) != (MAIN, 0):
            raise AgentError(
                f"the script of {self._name}: {thread} hands over in its first call, not {index}"
            )
        hand_over = Turn("", (ToolCall("call_desk", HANDOFF, {}),))
        return lengthened(hand_over, ACTION, asked, self._seed, self._name, thread, index)


def use(toolbox: Toolbox, name: str, thread: str, told: Told) -> Callable[[Any, str], Awaitable[str]]:
    """How the runner calls a tool: (its context, arguments as JSON) -> what the tool says."""
    from time import monotonic

    async def call(_: Any, written: str) -> str:
        try:
            arguments = json.loads(written or "{}")
        except ValueError as error:
            return f"the arguments of {name} are no JSON: {error}"
        if not isinstance(arguments, dict):
            return f"the arguments of {name} must be a JSON object"
        begin, ok = monotonic(), False
        try:
            said = await toolbox.call(name, arguments)
            ok = True
            return said
        finally:
            told.tool(thread, name, begin, monotonic(), ok)

    return call


def _tool(spec: ToolSpec, invoke: Callable[[Any, str], Awaitable[str]]) -> Any:
    from agents import FunctionTool

    return FunctionTool(
        name=spec.name, description=spec.description, params_json_schema=dict(spec.parameters),
        on_invoke_tool=invoke, strict_json_schema=False,
    )  # fmt: skip


@asynccontextmanager
async def _clients(chat: Chat, budget: Budget) -> Any:
    """(thread) -> an OpenAI client whose calls are of that thread."""
    from openai import AsyncOpenAI

    opened: list[Any] = []

    def client(thread: str) -> Any:
        key = chat.key or "none"
        opened.append(AsyncOpenAI(base_url=chat.url_of(thread), api_key=key, timeout=budget.seconds))
        return opened[-1]

    try:
        yield client
    finally:
        for one in opened:
            await one.close()


AGENT = OpenAiAgents()

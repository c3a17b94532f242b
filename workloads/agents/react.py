"""ReAct: the model acts through tools, sees what they say, and acts again until it answers.

Yao et al., "ReAct: Synergizing Reasoning and Acting in Language Models" (ICLR 2023), in the form that it has
today: tools are called natively, several at once if the model wants that, and thoughts are the text beside.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from workloads.agents.contract import MAIN, Budget, Chat, Script, Task, Told, Toolbox
from workloads.agents.scripts import Dialogue
from workloads.agents.work import Work, result, said, together


@dataclass
class React:
    """One thread, one conversation. ``max_tokens``: of a reply."""

    max_tokens: int = 1024
    name: str = field(default="react", init=False)
    suites: tuple[str, ...] = field(default=("repair", "bfcl", "game24", "documents"), init=False)
    any_suite: bool = field(default=True, init=False)
    needs: tuple[str, ...] = field(default=(), init=False)
    threads: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        if self.max_tokens < 1:
            raise ValueError(f"max_tokens must be at least 1, got {self.max_tokens}")

    def script(self, task: Task, seed: int) -> Script:
        """The task's solution, an action per call."""
        return Dialogue(task, seed)

    async def run(self, task: Task, chat: Chat, toolbox: Toolbox, budget: Budget, told: Told) -> list[str]:
        """Its answers to the task's turns. Raises AgentError."""
        work = Work(chat, toolbox, budget, told)
        messages: list[dict[str, Any]] = [{"role": "system", "content": task.system}] if task.system else []
        answers = []
        for turn in task.turns:
            messages.append({"role": "user", "content": turn})
            answers.append(await self._answer(messages, work))
        return answers

    async def _answer(self, messages: list[dict[str, Any]], work: Work) -> str:
        """Act until there is an answer; ``messages`` grows by all that was said."""
        while True:
            reply = await work.ask(messages, work.toolbox.specs, thread=MAIN, max_tokens=self.max_tokens)
            messages.append(said(reply))
            if not reply.tool_calls:
                return reply.text
            results = await together(work.use(call) for call in reply.tool_calls)
            messages += map(result, reply.tool_calls, results)


AGENT = React()

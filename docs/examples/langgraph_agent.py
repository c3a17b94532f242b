"""An agent of LangGraph's, plugged in from outside the project (docs/agent-host.md):

    BENCH_AGENTS_PYTHON=... bench run --engine vllm --workload agents:langgraph_agent:AGENT -p tasks=repair

from the folder in which this file is. Its graph is the usual one of two nodes, model and tools. A Python with
``langgraph`` and ``langchain-openai`` runs it; ``scripts/make_agents.sh`` builds one.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import Any

from workloads.agents.contract import MAIN, AgentError, Budget, BudgetUsed, Chat, Script, Task, Told, Toolbox
from workloads.agents.scripts import Dialogue


@dataclass(frozen=True)
class LangGraphAgent:
    """``max_tokens``: of a reply; a field is a parameter (``-p max_tokens=500``)."""

    max_tokens: int = 1024
    name: str = field(default="langgraph", init=False)
    suites: tuple[str, ...] = field(default=("repair", "bfcl"), init=False)
    needs: tuple[str, ...] = field(default=("langgraph", "langchain_openai"), init=False)
    threads: bool = field(default=False, init=False)

    def script(self, task: Task, seed: int) -> Script:
        """The task's solution, an action per call: tools are called natively, so its dialogue is that."""
        return Dialogue(task, seed)

    async def run(self, task: Task, chat: Chat, toolbox: Toolbox, budget: Budget, told: Told) -> list[str]:
        """Its answers to the task's turns, in one conversation. Raises AgentError."""
        import openai
        from langgraph.errors import GraphRecursionError

        graph = self.graph(chat, toolbox, told)
        messages: list[Any] = [("system", task.system)] if task.system else []
        answers = []
        try:
            for turn in task.turns:
                asked = {"messages": [*messages, ("user", turn)]}
                state = await graph.ainvoke(asked, {"recursion_limit": 2 * budget.calls})
                messages = state["messages"]
                answers.append(messages[-1].text)
        except GraphRecursionError:
            raise BudgetUsed(f"its budget of {budget.calls} calls is used up") from None
        except openai.APIError as error:
            raise AgentError(f"a call failed: {' '.join(str(error).split())}") from None
        return answers

    def graph(self, chat: Chat, toolbox: Toolbox, told: Told) -> Any:
        """model -> tools -> model -> ... until the model calls none."""
        from langchain_core.messages import ToolMessage
        from langchain_openai import ChatOpenAI
        from langgraph.graph import END, START, MessagesState, StateGraph

        model = ChatOpenAI(
            base_url=chat.url, model=chat.model, api_key=chat.key or "none", temperature=0.0,
            max_tokens=self.max_tokens,
        ).bind_tools([spec.openai() for spec in toolbox.specs])  # fmt: skip

        async def ask(state: Any) -> dict[str, Any]:
            return {"messages": [await model.ainvoke(state["messages"])]}

        async def use(call: Any) -> Any:
            begin = time.monotonic()
            said = await toolbox.call(call["name"], call["args"])
            told.tool(MAIN, call["name"], begin, time.monotonic(), True)
            return ToolMessage(said, tool_call_id=call["id"])

        async def tools(state: Any) -> dict[str, Any]:
            return {"messages": await asyncio.gather(*map(use, state["messages"][-1].tool_calls))}

        def where(state: Any) -> str:
            return "tools" if state["messages"][-1].tool_calls else END

        graph = StateGraph(MessagesState)
        graph.add_node("model", ask)
        graph.add_node("tools", tools)
        graph.add_edge(START, "model")
        graph.add_conditional_edges("model", where, ["tools", END])
        graph.add_edge("tools", "model")
        return graph.compile()


AGENT = LangGraphAgent()

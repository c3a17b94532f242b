"""What every loop of ours does alike: calls and tools within a budget, several of them at once."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from time import monotonic
from typing import Any, TypeVar

from workloads.agents.contract import (
    MAIN,
    Budget,
    BudgetUsed,
    Chat,
    Reply,
    Told,
    Toolbox,
    ToolCall,
    ToolSpec,
)

UNREADABLE = "unreadable"
"""The one argument of a tool call whose arguments are no JSON object: the text that came in their place."""

T = TypeVar("T")


class Work:
    """One program at work: it asks and uses tools, and what it used is counted.

    ``told`` hears of every tool call. ``clock`` is CLOCK_MONOTONIC (s); the budget's seconds begin here.
    """

    def __init__(
        self,
        chat: Chat,
        toolbox: Toolbox,
        budget: Budget,
        told: Told,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self.toolbox = toolbox
        self.told = told
        self._chat = chat
        self._budget = budget
        self._clock = clock
        self._deadline = clock() + budget.seconds
        self._asked = 0

    @property
    def calls_left(self) -> int:
        """How many calls the budget still has."""
        return self._budget.calls - self._asked

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
        """``Chat.ask``. Raises BudgetUsed before a call too many, and when the time is up."""
        if self.calls_left < 1:
            raise BudgetUsed(f"its budget of {self._budget.calls} calls is used up")
        self._asked += 1
        try:
            async with asyncio.timeout(self._seconds_left()):
                return await self._chat.ask(
                    messages, tools, thread=thread, max_tokens=max_tokens, temperature=temperature, seed=seed
                )
        except TimeoutError:
            raise self._late() from None

    async def use(self, call: ToolCall, thread: str = MAIN) -> str:
        """What a tool says; text, too, where it was stopped for taking longer than it may."""
        begin, ok = self._clock(), False
        limit = min(self._budget.tool_s, self._seconds_left())
        try:
            async with asyncio.timeout(limit):
                text = await self.toolbox.call(call.name, call.arguments)
            ok = True
        except TimeoutError:
            if limit < self._budget.tool_s:
                raise self._late() from None
            text = f"{call.name} took longer than {limit:g} s and was stopped"
        finally:
            self.told.tool(thread, call.name, begin, self._clock(), ok)
        return text

    def _seconds_left(self) -> float:
        left = self._deadline - self._clock()
        if left <= 0:
            raise self._late()
        return left

    def _late(self) -> BudgetUsed:
        return BudgetUsed(f"its budget of {self._budget.seconds:g} s is used up")


async def together(doing: Iterable[Awaitable[T]]) -> list[T]:
    """All at once; results in the order given. The first that fails stops the others, and is raised."""
    tasks = [asyncio.ensure_future(one) for one in doing]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def said(reply: Reply) -> dict[str, Any]:
    """A reply as a message of the history, in OpenAI's form."""
    message: dict[str, Any] = {"role": "assistant", "content": reply.text}
    if reply.tool_calls:
        message["tool_calls"] = [_call(call) for call in reply.tool_calls]
    return message


def result(call: ToolCall, text: str) -> dict[str, Any]:
    """What a tool said as a message of the history."""
    return {"role": "tool", "tool_call_id": call.id, "content": text}


def _call(call: ToolCall) -> dict[str, Any]:
    # What came unreadable goes back as it came: the model sees what it wrote.
    written = call.arguments.get(UNREADABLE) if set(call.arguments) == {UNREADABLE} else None
    arguments = written if isinstance(written, str) else json.dumps(dict(call.arguments))
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments}}

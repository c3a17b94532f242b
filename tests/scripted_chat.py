"""Chats without a server: one answers from a script, one counts how many calls follow each other."""

import asyncio
from collections import Counter

from workloads.agents.contract import MAIN, Budget, Reply, Told, Turn


class ScriptedChat:
    """Answers from a script, or from a function of (thread, index, asked); keeps what was asked."""

    url, model, key = "http://nowhere/v1", "scripted", ""

    def __init__(self, answer):
        self._answer = getattr(answer, "turn", answer)
        self.calls = Counter()
        self.asked = []
        self.turns = []

    def url_of(self, thread):
        return f"http://nowhere/{thread}/v1"

    async def ask(self, messages, tools=(), *, thread=MAIN, max_tokens=1024, temperature=0.0, seed=None):
        body = {"messages": [dict(m) for m in messages], "max_tokens": max_tokens, "temperature": temperature}
        body |= {"tools": [tool.openai() for tool in tools]} if tools else {}
        body |= {} if seed is None else {"seed": seed}
        index = self.calls[thread]
        self.calls[thread] += 1
        self.asked.append((thread, index, body))
        turn = self._answer(thread, index, body)
        self.turns.append((thread, index, turn))
        await self.wait()
        return Reply(turn.text, turn.tool_calls, 1, turn.output_tokens)

    async def wait(self):
        await asyncio.sleep(0)


class RoundsChat(ScriptedChat):
    """Calls that are out together are answered together, once nothing else moves: ``rounds`` of them."""

    def __init__(self, answer):
        super().__init__(answer)
        self.rounds = []
        self._out = []

    async def wait(self):
        mine = asyncio.get_running_loop().create_future()
        self._out.append(mine)
        for _ in range(50):
            await asyncio.sleep(0)
        if self._out and mine is self._out[-1]:
            out, self._out = self._out, []
            self.rounds.append(len(out))
            for one in out:
                one.set_result(None)
        await mine


def say(text, *calls, tokens=1):
    """A function that answers everything with the same."""
    return lambda thread, index, asked: Turn(text, tuple(calls), tokens)


def worked(agent, task, chat, *, budget=None, told=None, toolbox=None):
    """(answers, verdict) of a program."""

    async def program():
        tools = toolbox or task.toolbox(None)
        answers = await agent.run(task, chat, tools, budget or Budget(), told or Told())
        return answers, await task.check(tools, answers)

    return asyncio.run(program())

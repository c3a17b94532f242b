"""Our loops with their client, through the relay and its scripts, over an engine that is none."""

import asyncio

import pytest

from tests.scripted_chat import ScriptedChat, worked
from tests.unit.workloads.agents.relay.upstream import MODEL, Upstream
from workloads.agents import catalog
from workloads.agents.chat import HttpChat
from workloads.agents.contract import AgentError, Budget, Told
from workloads.agents.relay.server import Relay


def through_relay(agent, tasks, scripts):
    """([(answers, verdict)], calls that the relay heard of) of programs that run at once."""

    async def program(relay, number, task):
        async with HttpChat(relay.url, number, "any") as chat:
            tools = task.toolbox(None)
            answers = await agent.run(task, chat, tools, Budget(), Told())
            return answers, await task.check(tools, answers)

    async def go():
        calls = []
        async with (
            Upstream() as upstream,
            Relay(upstream.url, MODEL, run="r", scripts=scripts, told=calls.append) as relay,
        ):
            async with asyncio.timeout(20):
                done = [program(relay, number, task) for number, task in enumerate(tasks)]
                return await asyncio.gather(*done), calls

    return asyncio.run(go())


@pytest.mark.parametrize(
    ("name", "suite"),
    [("react", "game24"), ("react", "documents"), ("mapreduce", "documents"), ("mcts", "game24")],
)
def test_a_program_is_what_it_is_without_a_server(name, suite):
    agent, tasks = catalog.agent(name), catalog.suite(suite).tasks(3, 1, None)
    done, calls = through_relay(agent, tasks, {i: agent.script(task, 1) for i, task in enumerate(tasks)})
    for number, task in enumerate(tasks):
        chat = ScriptedChat(agent.script(task, 1))
        assert done[number] == worked(agent, task, chat)
        mine = {(call.thread, call.index): call for call in calls if call.program == number}
        assert len(mine) == len(chat.turns)
        for thread, index, turn in chat.turns:
            call = mine[thread, index]
            assert (call.outcome, call.status) == ("finished", 200)
            assert call.scripted_tokens == call.output_tokens == turn.output_tokens


def test_a_call_without_a_script_is_refused_and_named():
    agent, tasks = catalog.agent("react"), catalog.suite("game24").tasks(1, 1, None)
    with pytest.raises(AgentError, match="call 0 of thread main of program 0: refused with"):
        through_relay(agent, tasks, {})

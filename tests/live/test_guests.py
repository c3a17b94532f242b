"""The real guests, each in the agent host, through a server that answers from their own scripts."""

from __future__ import annotations

import asyncio
import os

import pytest

from tests.live.fake_chat import fake_chat
from workloads.agents import catalog
from workloads.agents.contract import MAIN, AgentError, Budget
from workloads.agents.guests.openai_agents import HANDOFF, WORKER
from workloads.agents.host_process import ROOT, HostProcess, find_python
from workloads.agents.job import Job

pytestmark = pytest.mark.live

EXAMPLES = ROOT / "docs" / "examples"
N, SEED, LOST = 5, 7, 0
ACTIONS = [sum(map(len, task.solution)) for task in catalog.suite("repair").tasks(N, SEED, None)]
BUDGET = Budget(calls=max(ACTIONS), seconds=90)


class Lost:
    """A script that has nothing more after two calls."""

    def __init__(self, script):
        self.script = script

    def turn(self, thread, index, asked):
        if index > 1:
            raise AgentError("the script ends here")
        return self.script.turn(thread, index, asked)


def run(tmp_path, name, parameters=None, budget=BUDGET):
    """(the server, events by kind) of N programs; scripts are made as ``bench run`` makes them: here.

    Program ``LOST`` has a script that is too short.
    """
    agent = catalog.agent(name, parameters or {})
    tasks = catalog.suite("repair").tasks(N, SEED, None)
    made = {program: agent.script(task, program) for program, task in enumerate(tasks)}

    async def drive():
        async with fake_chat({**made, LOST: Lost(made[LOST])}) as server:
            job = Job(
                name, "repair", N, SEED, concurrency=3, url=server.url, model="tiny",
                folder=str(tmp_path / "sandboxes"), sandbox="process", owner=f"test-guests-{os.getpid()}",
                parameters=parameters or {}, budget=budget,
            )  # fmt: skip
            async with HostProcess(
                job, tmp_path / "host.log", python=find_python(agent), search_path=[str(EXAMPLES)]
            ) as host:
                events = [event async for event in host.events()]
        return server, events

    server, events = asyncio.run(asyncio.wait_for(drive(), 150))
    kinds = {event["event"] for event in events}
    return server, {kind: [event for event in events if event["event"] == kind] for kind in kinds}


def ends_as_it_must(events, calls):
    """One is refused its third call, the longest have more calls than the budget, all others are right."""
    ended = {event["program"]: (event["outcome"], event["success"]) for event in events["ended"]}
    expected = [("timeout", False) if length > calls else ("finished", True) for length in ACTIONS]
    expected[LOST] = ("failed", False)
    why = {event["program"]: event["why"] for event in events["ended"]}
    assert ended == dict(enumerate(expected))
    assert "the script ends here" in why[LOST]
    late = [why[program] for program, outcome in enumerate(expected) if outcome[0] == "timeout"]
    assert set(late) <= {f"its budget of {calls} calls is used up"}
    assert events["over"][0]["leaks"] == []
    return len(late)


def others(counted):
    return {program: count for program, count in counted.items() if program != LOST}


def test_mini_swe_agent(tmp_path):
    calls = max(ACTIONS) - 1
    server, events = run(tmp_path, "mini-swe", budget=Budget(calls=calls, seconds=90))
    assert ends_as_it_must(events, calls) > 0
    asked = {program: server.asked[program, MAIN] for program in range(N)}
    assert others(asked) == others({program: min(calls, length) for program, length in enumerate(ACTIONS)})
    assert {end["notes"].get("exit_status") for end in events["ended"]} == {
        "Submitted",
        "LimitsExceeded",
        None,
    }
    assert events["ready"][0]["versions"]["mini-swe-agent"] == "2.4.6"
    assert {event["name"] for event in events["tool"]} == {"bash"}
    system, user = server.bodies[0][2]["messages"][:2]
    assert "interact with a computer" in system["content"]  # its own prompts
    assert "bash tool call" in user["content"]
    assert [tool["function"]["name"] for tool in server.bodies[0][2]["tools"]] == ["bash"]


def test_openai_agents(tmp_path):
    calls = max(ACTIONS) - 1
    server, events = run(tmp_path, "openai-agents", budget=Budget(calls=calls, seconds=90))
    assert ends_as_it_must(events, calls) > 0
    assert {thread for _, thread in server.asked} == {MAIN}
    assert {event["thread"] for event in events["tool"]} == {MAIN}
    tools = [tool["function"]["name"] for tool in server.bodies[0][2]["tools"]]
    assert tools == ["bash", "read_file", "write_file", "replace", "run_tests"]


def test_openai_agents_by_responses_with_a_handoff(tmp_path):
    budget = Budget(calls=max(ACTIONS) + 1, seconds=90)
    server, events = run(tmp_path, "openai-agents", {"api": "responses", "handoff": True}, budget)
    assert ends_as_it_must(events, max(ACTIONS)) == 0
    asked = {program: server.asked[program, WORKER] for program in range(N)}
    assert others(asked) == others(dict(enumerate(ACTIONS)))
    assert [server.asked[program, MAIN] for program in range(N)] == [1] * N
    assert {event["thread"] for event in events["tool"]} == {WORKER}
    assert [tool["name"] for tool in server.bodies[0][2]["tools"]] == [HANDOFF]


def test_the_example_of_langgraph(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    calls = max(ACTIONS) - 1
    _, events = run(tmp_path, "langgraph_agent:AGENT", budget=Budget(calls=calls, seconds=90))
    assert ends_as_it_must(events, calls) > 0
    assert events["ready"][0]["versions"]["langgraph"] == "1.2.24"

"""The real guests, each in the agent host, through a server that answers from their own scripts."""

from __future__ import annotations

import asyncio
import os

import pytest

from tests.live.fake_chat import fake_chat
from workloads.agents import catalog
from workloads.agents.contract import MAIN, Budget
from workloads.agents.guests.openai_agents import HANDOFF, WORKER
from workloads.agents.host_process import ROOT, HostProcess, find_python
from workloads.agents.job import Job

pytestmark = pytest.mark.live

EXAMPLES = ROOT / "docs" / "examples"
N = 4
BUDGET = Budget(seconds=90)


def run(tmp_path, name, suite, parameters=None, scripts=None, budget=BUDGET):
    """(the server, events by kind) of N programs; scripts are made as ``bench run`` makes them: here."""
    agent = catalog.agent(name, parameters or {})
    tasks = catalog.suite(suite).tasks(N, 7, None)
    made = {program: agent.script(task, program) for program, task in enumerate(tasks)}

    async def drive():
        async with fake_chat(made if scripts is None else scripts(made)) as server:
            job = Job(
                name, suite, N, 7, concurrency=2, url=server.url, model="tiny",
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


def successes(events):
    return [(end["outcome"], end["success"], end["why"]) for end in events["ended"]]


def actions(name):
    """Of the solution of each task."""
    return [sum(map(len, task.solution)) for task in catalog.suite(name).tasks(N, 7, None)]


def test_mini_swe_agent_repairs(tmp_path):
    server, events = run(tmp_path, "mini-swe", "repair")
    assert successes(events) == [("finished", True, "")] * N
    assert [server.asked[program, MAIN] for program in range(N)] == actions("repair")
    assert {end["notes"]["exit_status"] for end in events["ended"]} == {"Submitted"}
    assert events["ready"][0]["versions"]["mini-swe-agent"] == "2.4.6"
    assert {event["name"] for event in events["tool"]} == {"bash"}
    assert events["over"][0]["leaks"] == []
    system, user = server.bodies[0][2]["messages"][:2]
    assert "interact with a computer" in system["content"]  # its own prompts
    assert "bash tool call" in user["content"]
    assert [tool["function"]["name"] for tool in server.bodies[0][2]["tools"]] == ["bash"]


@pytest.mark.parametrize(("api", "handoff"), [("chat", False), ("responses", False), ("chat", True)])
def test_openai_agents_repair(tmp_path, api, handoff):
    server, events = run(tmp_path, "openai-agents", "repair", {"api": api, "handoff": handoff})
    assert successes(events) == [("finished", True, "")] * N
    thread = WORKER if handoff else MAIN
    assert [server.asked[program, thread] for program in range(N)] == actions("repair")
    assert all(server.asked[program, MAIN] == 1 for program in range(N)) or not handoff
    assert {event["thread"] for event in events["tool"]} == {thread}
    assert events["over"][0]["leaks"] == []
    if handoff:
        assert HANDOFF in str(server.bodies[0][2]["tools"])


def test_the_example_of_langgraph(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    server, events = run(tmp_path, "langgraph_agent:AGENT", "repair")
    assert successes(events) == [("finished", True, "")] * N
    assert [server.asked[program, MAIN] for program in range(N)] == actions("repair")
    assert events["ready"][0]["versions"]["langgraph"] == "1.2.24"
    assert events["over"][0]["leaks"] == []


class Lost:
    """A script that has nothing more after two calls."""

    def __init__(self, script):
        self.script = script

    def turn(self, thread, index, asked):
        if index > 1:
            return self.script.turn("nowhere", index, asked)
        return self.script.turn(thread, index, asked)


@pytest.mark.parametrize("name", ["mini-swe", "openai-agents"])
def test_a_call_that_is_refused_fails_the_program(tmp_path, name):
    def lost(scripts):
        return {**scripts, 1: Lost(scripts[1])}

    _, events = run(tmp_path, name, "repair", scripts=lost)
    why = {end["program"]: (end["outcome"], end["why"]) for end in events["ended"]}
    assert why[1][0] == "failed"
    assert "of nowhere is none of them" in why[1][1]
    assert {why[program] for program in (0, 2, 3)} == {("finished", "")}
    assert events["over"][0]["leaks"] == []


@pytest.mark.parametrize("name", ["mini-swe", "openai-agents"])
def test_a_budget_of_calls(tmp_path, name):
    _, events = run(tmp_path, name, "repair", budget=Budget(calls=2, seconds=90))
    assert {end["outcome"] for end in events["ended"]} == {"timeout"}
    assert {end["why"] for end in events["ended"]} == {"its budget of 2 calls is used up"}

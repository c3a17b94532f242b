"""What guests are told to do, without them: their scripts, and how a thread gets at the loop."""

import asyncio
import re
import threading
import tomllib
from contextlib import suppress

import pytest

from tests.unit.workloads.agents.host_parts import AGENT as FAKE
from workloads.agents import catalog
from workloads.agents.contract import MAIN, AgentError
from workloads.agents.guests.mini_swe import SUBMIT, Environment, last_words
from workloads.agents.guests.openai_agents import HANDOFF, WORKER, use
from workloads.agents.host_process import ROOT
from workloads.agents.threads import behind_door
from workloads.base import WorkloadError
from workloads.sandboxes.contract import Executed

TASKS = catalog.suite("repair").tasks(24, 3, None)


def turns(script, thread=MAIN):
    said = []
    with suppress(AgentError):
        while True:
            said.append(script.turn(thread, len(said), {}))
    with pytest.raises(AgentError, match="is none of them"):
        script.turn(thread, len(said), {})
    return said


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_mini_swe_is_told_shell_lines_and_to_submit(task):
    said = turns(catalog.agent("mini-swe").script(task, 1))
    assert len(said) == sum(map(len, task.solution))
    assert all(turn.tool_calls and turn.output_tokens > 0 for turn in said)
    calls = [call for turn in said for call in turn.tool_calls]
    assert {call.name for call in calls} == {"bash"}
    assert len({call.id for call in calls}) == len(calls)
    lines = [call.arguments["command"] for call in calls]
    assert [line for line in lines if SUBMIT in line] == [lines[-1]] == [f"echo {SUBMIT}"]
    assert said == turns(catalog.agent("mini-swe").script(task, 1))
    assert said != turns(catalog.agent("mini-swe").script(task, 2))


def test_a_handoff_comes_first_and_the_rest_is_the_other_agents():
    script = catalog.agent("openai-agents", {"handoff": "true"}).script(TASKS[0], 1)
    first = script.turn(MAIN, 0, {})
    assert [call.name for call in first.tool_calls] == [HANDOFF]
    plain = catalog.agent("openai-agents").script(TASKS[0], 1)
    assert turns(script, WORKER) == turns(plain)
    with pytest.raises(AgentError, match="in its first call, not 1"):
        script.turn(MAIN, 1, {})


def test_parameters_of_openai_agents():
    assert catalog.agent("openai-agents", {"handoff": True}).threads
    assert not catalog.agent("openai-agents").threads
    with pytest.raises(WorkloadError, match="chat, responses, got 'soap'"):
        catalog.agent("openai-agents", {"api": "soap"})


class Shell:
    limit_s = 9.0

    def __init__(self, done):
        self.done = done
        self.commands = []

    async def run(self, command, cwd):
        self.commands.append(command)
        return self.done


def executed(done):
    """What mini-swe-agent's environment makes of it, and the command that was run."""
    shell = Shell(done)

    async def drive():
        return await behind_door(
            lambda door: Environment(shell, door, {"PAGER": "cat"}).execute({"command": "ls"})
        )

    return asyncio.run(drive()), shell.commands


def test_the_environment_of_mini_swe():
    said, commands = executed(Executed(3, "no such file", 0.1))
    assert said == {"output": "no such file", "returncode": 3, "exception_info": ""}
    assert commands == ["export PAGER='cat'; ls"]
    said, _ = executed(Executed(-9, "half", 9.0, timed_out=True))
    assert (said["output"], said["returncode"]) == ("half", -1)
    assert "more than 9 seconds" in said["exception_info"]
    said, _ = executed(Executed(1, f"{SUBMIT}\n", 0.1))  # it failed: no submission
    assert said["returncode"] == 1


def test_the_last_words():
    messages = [
        {"role": "assistant", "content": "a"},
        {"role": "assistant", "content": "b"},
        {"role": "exit"},
    ]
    assert last_words(messages) == "b"
    assert last_words([{"role": "assistant", "content": None}]) == last_words([]) == ""


def test_a_thread_is_refused_once_its_program_has_ended():
    refused, go = [], threading.Event()

    def work(door):
        try:
            door.wait(asyncio.sleep(60))
        except AgentError as error:
            refused.append(str(error))
        try:
            door.wait(asyncio.sleep(0))
        except AgentError as error:
            refused.append(str(error))
        go.set()

    async def drive():
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await behind_door(work)
        await asyncio.to_thread(go.wait, 5)

    asyncio.run(drive())
    assert refused == ["the program was ended"] * 2


@pytest.mark.parametrize(
    ("raised", "seen", "words"),
    [
        (KeyError("x"), KeyError, "x"),
        (SystemExit(4), AgentError, "it left"),
        (StopIteration(), AgentError, "it left"),
    ],
)
def test_what_a_thread_raises(raised, seen, words):
    def work(door):
        raise raised

    with pytest.raises(seen, match=words):
        asyncio.run(behind_door(work))


@pytest.mark.parametrize("written", ["{", "[1]"])
def test_arguments_that_are_none_are_text_for_the_model(written):
    said = asyncio.run(use(FAKE, "add", MAIN, None)(None, written))
    assert said.startswith("the arguments of add")


def test_the_extra_and_the_script_name_the_same_guests():
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text())
    script = (ROOT / "scripts" / "make_agents.sh").read_text()
    pinned = re.search(r'^GUESTS="(.*)"$', script, re.MULTILINE)[1].split()
    assert set(pyproject["project"]["optional-dependencies"]["agents"]) <= set(pinned)

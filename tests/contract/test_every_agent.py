"""Every agent with every suite that it names: a new file of either is held to the contract without an edit.

An agent without a client of its own runs here, answered from its own script; guests (``needs``) bring
theirs and run in tests/live. A suite whose data is not here (BENCH_AGENT_DATA names the folder), or whose
sandbox this machine cannot have, is skipped.
"""

import asyncio
import os
import re
from collections import Counter
from pathlib import Path
from uuid import uuid4

import pytest

from tests.scripted_chat import ScriptedChat
from workloads.agents import catalog
from workloads.agents.contract import Action, AgentError, Budget, Told, ToolSpec
from workloads.sandboxes.catalog import sandbox_kind
from workloads.sandboxes.contract import SandboxOptions

_BESIDE = Path(__file__).parents[3] / "shared" / "data"
DATA = os.environ.get("BENCH_AGENT_DATA") or (str(_BESIDE) if _BESIDE.is_dir() else None)
TASKS = 3
AGENTS = [catalog.agent(name) for name in catalog.agent_names()]
SUITES = {name: catalog.suite(name) for name in catalog.suite_names()}
PAIRS = [(agent, suite) for agent in AGENTS for suite in catalog.suites_of(agent)]
SEARCHES = {"mcts"}
"""Their scripts see something, not all: they may lose (tests/unit/workloads/agents/test_mcts.py)."""


def named(thing):
    return getattr(thing, "name", thing)


def tasks_of(name, n=TASKS, seed=1):
    """The first of a suite; skips where there are none here."""
    suite, data = SUITES[name], Path(DATA) if DATA else None
    if why := suite.missing(data):
        pytest.skip(why)
    return suite.tasks(n, seed, data)


def test_names_are_unique_and_known():
    assert Counter(named(agent) for agent in AGENTS).most_common(1)[0][1] == 1
    for agent, suite in PAIRS:
        assert suite in SUITES, f"{agent.name} names a suite {suite} that is not there"
    assert {suite for _, suite in PAIRS} == set(SUITES), "a suite that nobody can do"


@pytest.mark.parametrize("name", SUITES)
def test_tasks_are_plain_data_that_a_seed_gives(name):
    tasks = tasks_of(name)
    again, other = tasks_of(name), tasks_of(name, seed=2)
    assert len(tasks) == len({task.name for task in tasks}) == TASKS
    for one, two in zip(tasks, again, strict=True):
        assert (one.name, one.system, list(one.turns)) == (two.name, two.system, list(two.turns))
        assert (one.solution, one.data, one.files) == (two.solution, two.data, two.files)
    assert [task.name for task in tasks] != [task.name for task in other]
    for task in tasks:
        assert len(task.turns) == len(task.solution) > 0
        for actions in task.solution:
            assert all(isinstance(action, Action) for action in actions)
            assert actions[-1].calls == ()


@pytest.mark.parametrize("name", [name for name, suite in SUITES.items() if not suite.needs_sandbox])
def test_a_tools_failure_is_text(name):
    (task,) = tasks_of(name, 1)
    tools = task.toolbox(None)
    assert tools.specs
    assert all(isinstance(spec, ToolSpec) and spec.parameters["type"] == "object" for spec in tools.specs)

    async def wrong():
        said = [await tools.call("no-such-tool", {})]
        for spec in tools.specs:
            said += [await tools.call(spec.name, {"no-such-argument": [None]})]
        return said

    assert all(isinstance(said, str) and said for said in asyncio.run(wrong()))


@pytest.mark.parametrize(("agent", "suite"), PAIRS, ids=named)
def test_a_script_is_a_pure_function(agent, suite):
    """The same call gets the same turn: of another script of the same seed, in another order, asked again."""
    (task,) = tasks_of(suite, 1, seed=4)
    if agent.needs:
        first, second = agent.script(task, 5), agent.script(task, 5)
        asked = {"messages": [], "input": [], "max_tokens": 100}
        assert first.turn("main", 0, asked) == second.turn("main", 0, asked) == first.turn("main", 0, asked)
        return
    chat = ScriptedChat(agent.script(task, 5))
    run(agent, suite, task, chat)
    fresh = agent.script(task, 5)
    for (thread, index, body), (*_, turn) in reversed(list(zip(chat.asked, chat.turns, strict=True))):
        assert fresh.turn(thread, index, body) == turn
        assert turn.output_tokens >= 1
    with pytest.raises(AgentError):
        fresh.turn("no-such-thread", 0, {"messages": []})


@pytest.mark.parametrize(("agent", "suite"), [pair for pair in PAIRS if not pair[0].needs], ids=named)
def test_it_solves_what_its_script_solves(agent, suite):
    """Guests bring clients of their own: tests/live/test_guests.py."""
    solved = []
    for task in tasks_of(suite, 1 if SUITES[suite].needs_sandbox else TASKS):
        chat = ScriptedChat(agent.script(task, 1))
        answers, verdict = run(agent, suite, task, chat)
        assert len(answers) == len(task.turns)
        assert agent.threads or set(chat.calls) == {"main"}
        assert all(body["messages"] for *_, body in chat.asked)
        solved.append(verdict.success)
        assert verdict.success or (agent.name in SEARCHES and verdict.why), verdict
    assert any(solved)


def test_the_agent_of_the_document_is_one(tmp_path, monkeypatch):
    text = (Path(__file__).parents[2] / "docs/agents.md").read_text()
    (code,) = re.findall(r"```python\n(# once\.py.*?)```", text, re.DOTALL)
    (tmp_path / "once.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    agent = catalog.agent("once:AGENT", {"max_tokens": "50"})
    (task,) = tasks_of(catalog.suite_of(agent).name, 1)
    chat = ScriptedChat(agent.script(task, 1))
    assert run(agent, "documents", task, chat)[1].success
    assert len(chat.asked) == 1


def run(agent, suite, task, chat):
    """(answers, verdict), in a sandbox where the suite needs one."""

    async def program():
        if not SUITES[suite].needs_sandbox:
            return await solve(None)
        folder = Path(os.environ["BENCH_TEST_FOLDER"])
        options = SandboxOptions(f"contract-{os.getpid()}-{uuid4().hex[:8]}", folder, files=task.files)
        sandbox = kind().make(options, lambda event: None)
        await sandbox.init()
        try:
            return await solve(sandbox)
        finally:
            await sandbox.teardown()

    async def solve(sandbox):
        tools = task.toolbox(sandbox)
        answers = await agent.run(task, chat, tools, Budget(), Told())
        return answers, await task.check(tools, answers)

    return asyncio.run(program())


def kind():
    found = sandbox_kind("process")
    if why := found.missing():
        pytest.skip(why)
    return found


@pytest.fixture(autouse=True)
def _folder(tmp_path, monkeypatch):
    (tmp_path / "sandbox").mkdir()
    monkeypatch.setenv("BENCH_TEST_FOLDER", str(tmp_path / "sandbox"))

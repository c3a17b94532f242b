"""Every repository is broken before its solution and whole after it."""

import asyncio
import json
import subprocess
import sys

import pytest

from tests.unit.workloads.agents.tasks.folder_sandbox import FolderSandbox
from workloads.agents.contract import AgentError
from workloads.agents.tasks.repair import (
    HIDDEN,
    SUITE,
    SYSTEM,
    names,
    parse_task,
    read_task,
)
from workloads.agents.tasks.repair_tools import NO_PYTHON, shell_line
from workloads.base import WorkloadError
from workloads.sandboxes.contract import Executed

FORKS = """
import asyncio, csv, datetime, decimal, io, json, os, sys, tempfile, unittest

for folder, module in json.load(sys.stdin):
    child = os.fork()
    if not child:
        os.chdir(folder)
        sys.path.insert(0, folder)
        sys.stderr = io.StringIO()
        ended = unittest.main(module, argv=["unittest"], exit=False) if module else unittest.main(
            None, argv=["unittest", "discover", "-s", "tests", "-t", "."], exit=False)
        ran = ended.result.testsRun
        os._exit((1 if ended.result.wasSuccessful() else 2) if ran else 3)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
PASSED, FAILED = 1, 2


def outcomes(runs):
    """Of unittest in (folder, module or None for those in tests/), each a fork of one interpreter."""
    command = [sys.executable, "-B", "-c", FORKS]
    asked = json.dumps([(str(folder), module) for folder, module in runs])
    done = subprocess.run(command, input=asked, capture_output=True, text=True, timeout=60, check=True)
    return [int(line) for line in done.stdout.split()]


def solved(task, folder):
    """``folder`` with the task's solution applied, without its runs of tests."""
    box = task.toolbox(FolderSandbox(folder, dict(task.files), skip="-m unittest"))

    async def act():
        for action in task.solution[0]:
            for name, arguments in action.calls:
                said = await box.call(name, arguments)
                assert not said.startswith("Error"), (task.name, name, said)
                assert "exit status" not in said, (task.name, name, said)

    asyncio.run(act())
    (folder / f"{HIDDEN}.py").write_text(task.hidden)
    return folder


def broken(task, folder):
    FolderSandbox(folder, {**task.files, f"{HIDDEN}.py": task.hidden})
    return folder


def test_each_bug_fails_both_tests_and_each_solution_passes_both(tmp_path):
    tasks = [read_task(name) for name in names()]
    before = [broken(task, tmp_path / task.name / "before") for task in tasks]
    after = [solved(task, tmp_path / task.name / "after") for task in tasks]
    runs = [
        (folder, module) for folders in (before, after) for folder in folders for module in (None, HIDDEN)
    ]
    said = outcomes(runs)
    wrong = [
        f"{folder.parent.name}: {module or 'tests'} {folder.name}: {outcome}"
        for (folder, module), outcome in zip(runs, said, strict=True)
        if outcome != (FAILED if folder.name == "before" else PASSED)
    ]
    assert wrong == []


def test_the_set_is_varied():
    tasks = [read_task(name) for name in names()]
    assert len(tasks) == 24
    assert len({task.data["kind"] for task in tasks}) == 24
    runs = [[c[0] for a in task.solution[0] for c in a.calls].count("run_tests") for task in tasks]
    assert sum(n > 2 for n in runs) >= 8, "some solutions need a second try"
    assert {c[0] for task in tasks for a in task.solution[0] for c in a.calls} == {
        "bash",
        "read_file",
        "write_file",
        "replace",
        "run_tests",
    }
    assert all(2 <= sum(not p.startswith("tests/") for p in task.files) <= 6 for task in tasks)


@pytest.mark.parametrize("name", ["fetcher"])
def test_the_check_runs_the_hidden_tests(tmp_path, name):
    task = read_task(name)
    box = task.toolbox(FolderSandbox(tmp_path, dict(task.files)))

    async def run():
        before = await task.check(box, ["fixed"])
        for action in task.solution[0]:
            for call in action.calls:
                await box.call(*call)
        return before, await task.check(box, [])

    before, none = asyncio.run(run())
    assert not before.success
    assert before.why.startswith("hidden tests: FAILED")
    assert none == (False, "no answer")
    assert asyncio.run(task.check(box, ["fixed"])) == (True, "")


@pytest.mark.slow
@pytest.mark.parametrize("name", names())
def test_the_whole_solution_as_an_agent_would_see_it(tmp_path, name):
    task = read_task(name)
    box = task.toolbox(FolderSandbox(tmp_path, dict(task.files)))

    async def run():
        said = [await box.call(*call) for action in task.solution[0] for call in action.calls]
        return said, await task.check(box, ["fixed"])

    said, verdict = asyncio.run(run())
    tests = [text for text in said if "Ran " in text]
    assert "[exit status 1]" in tests[0]
    assert tests[-1].endswith("OK")
    assert verdict == (True, "")


@pytest.mark.slow
@pytest.mark.parametrize("name", names())
def test_the_whole_solution_in_lines_of_shell(tmp_path, name):
    task = read_task(name)
    sandbox = FolderSandbox(tmp_path, dict(task.files))

    async def run():
        for action in task.solution[0]:
            for call in action.calls:
                done = await sandbox.exec(shell_line(*call))
                assert done.code == 0 or call[0] == "run_tests", (call, done.output)
        return await task.check(task.toolbox(sandbox), ["fixed"])

    assert asyncio.run(run()) == (True, "")


def test_a_line_of_shell_does_what_its_tool_does(tmp_path):
    text = 'it\'s\n"quoted" $HOME \\n \\\\ %s\n'
    calls = [
        ("write_file", {"path": "a b.txt", "content": text + "old\n"}),
        ("replace", {"path": "a b.txt", "old": "old", "new": "'new'"}),
        ("read_file", {"path": "a b.txt"}),
    ]
    done = [asyncio.run(FolderSandbox(tmp_path, {}).exec(shell_line(*call))) for call in calls]
    assert [one.code for one in done] == [0, 0, 0]
    assert done[2].output == text + "'new'\n"
    with pytest.raises(ValueError, match="fly"):
        shell_line("fly", {})


class Said:
    """A sandbox in which every command answers the same."""

    def __init__(self, code, output, timed_out=False):
        self.done = Executed(code, output, 60.0, timed_out)

    async def exec(self, command, *, timeout_s=60.0, stdin="", cwd=""):
        return self.done

    async def write(self, path, text):
        pass


@pytest.mark.parametrize(
    ("code", "output", "why"),
    [
        (127, "sh: python3: not found", NO_PYTHON),
        (0, "Ran 2 tests in 0.1s\n\nOK", "hidden tests: OK (2 of 3 ran, exit status 0)"),
        (0, "", "hidden tests: no output (none ran, exit status 0)"),
        (1, "Ran 3 tests in 0.1s\n\nFAILED (failures=1)", "FAILED (failures=1) (3 of 3 ran, exit status 1)"),
        (1, "SyntaxError: invalid syntax", "SyntaxError: invalid syntax (none ran, exit status 1)"),
    ],
)
def test_no_way_around_the_check(code, output, why):
    task = read_task("pager")
    verdict = asyncio.run(task.check(task.toolbox(Said(code, output)), ["fixed"]))
    assert not verdict.success
    assert verdict.why.endswith(why)


def test_hidden_tests_that_hang():
    task = read_task("pager")
    verdict = asyncio.run(task.check(task.toolbox(Said(-9, "", timed_out=True)), ["fixed"]))
    assert verdict == (False, "the hidden tests took more than 60 s")


def test_tasks_come_in_a_seeded_order_and_again():
    assert SUITE.missing(None) == ""
    first = SUITE.tasks(30, 3, None)
    assert [task.name for task in first] == [task.name for task in SUITE.tasks(30, 3, None)]
    assert len({task.name for task in first}) == 30
    assert first[24].files == first[0].files
    assert first[24].name == f"{first[0].name}.2"
    assert first[0].system == SYSTEM


def test_tools_need_a_sandbox():
    with pytest.raises(AgentError, match="need a sandbox"):
        read_task("pager").toolbox(None)


GOOD = {
    "kind": "k",
    "issue": "i",
    "answer": "a",
    "hidden": "h",
    "files": {},
    "solution": [{"say": "s", "run_tests": {}}],
}


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"note": "x"}, "look at note"),
        ({"solution": [{"say": "only"}]}, "solution 0: no tool is called"),
        ({"solution": [{"fly": {}}]}, "solution 0: no tool 'fly'"),
        ({"solution": [{"bash": {}}]}, "solution 0: bash wants 'command'"),
    ],
)
def test_a_file_that_is_none_of_ours_is_named(change, why):
    with pytest.raises(WorkloadError, match=f"^mine.toml: .*{why}|^mine.toml: {why}"):
        parse_task("mine", {**GOOD, **change})

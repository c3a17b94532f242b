"""Every repository is broken before its solution and whole after it."""

import asyncio
import contextlib
import json
import os
import subprocess
import sys

import pytest

from tests.unit.workloads.agents.tasks.folder_sandbox import FolderSandbox
from workloads.agents.contract import AgentError
from workloads.agents.tasks.repair import SUITE, SYSTEM, names, parse_task, read_task
from workloads.agents.tasks.repair_check import judged
from workloads.agents.tasks.repair_runner import HIDDEN
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
        (0, "Ran 3 tests in 0.1s\n\nOK", "hidden tests: no result, exit status 0: OK"),
        (0, "", "hidden tests: no result, exit status 0"),
        (
            0,
            'word {"ran": 3, "ok": true, "why": ""}',
            "exit status 0: word " + '{"ran": 3, "ok": true, "why": ""}',
        ),
        (-9, "Killed", "hidden tests: no result, exit status -9: Killed"),
    ],
)
def test_no_way_around_the_check(code, output, why):
    task = read_task("pager")
    verdict = asyncio.run(task.check(task.toolbox(Said(code, output)), ["fixed"]))
    assert not verdict.success
    assert verdict.why.endswith(why)


@pytest.mark.parametrize(
    ("ran", "ok", "why"), [(3, True, ""), (2, True, "hidden tests: OK (2 of 3 ran)"),
                           (3, False, "hidden tests: OK (3 of 3 ran)")],
)  # fmt: skip
def test_what_the_runner_says_behind_its_word_counts(ran, ok, why):
    line = json.dumps({"ran": ran, "ok": ok, "why": "OK"})
    assert judged(Executed(0, f"noise\nw0rd {line}\n", 1.0), "w0rd", 3) == why


FAKES = {
    "a unittest of its own": {"unittest.py": "print('Ran 3 tests in 0.1s\\n\\nOK')\nraise SystemExit"},
    "a json of its own": {"json.py": "raise SystemExit", "io.py": "raise SystemExit"},
    "a sitecustomize": {"sitecustomize.py": "import os; print('Ran 3 tests'); os._exit(0)"},
    "an interpreter that ends": {
        "cache/__init__.py": "import os\nprint('Ran 3 tests in 0s\\n\\nOK')\nos._exit(0)"
    },
    "an assertEqual that is none": {
        "cache/__init__.py": "import unittest\nunittest.TestCase.assertEqual = lambda *a, **k: None"
    },
    "tests that are skipped": {"cache/__init__.py": "import unittest\nraise unittest.SkipTest('no')"},
    "hidden tests of its own": {f"{HIDDEN}.py": "import unittest"},
}


@pytest.mark.parametrize("files", FAKES.values(), ids=FAKES)
def test_files_of_the_agent_do_not_make_hidden_tests_pass(tmp_path, files):
    task = read_task("lru")
    box = task.toolbox(FolderSandbox(tmp_path, {**task.files, **files}))
    verdict = asyncio.run(task.check(box, ["fixed"]))
    assert not verdict.success
    assert verdict.why.startswith("hidden tests: ")


def test_files_of_the_agent_do_not_make_a_repaired_one_fail(tmp_path):
    task = read_task("lru")
    stale = {"unittest.py": "raise SystemExit", f"cache/__pycache__/x.{sys.implementation.cache_tag}.pyc": ""}
    solved(task, tmp_path)
    box = task.toolbox(FolderSandbox(tmp_path, stale))
    assert asyncio.run(task.check(box, ["fixed"])) == (True, "")


def test_what_the_agent_left_running_does_not_see_the_check(tmp_path, monkeypatch):
    """It would put its own file in place as long as the tests run."""
    task, name = read_task("lru"), f"repair-{os.getpid()}"
    environment = {**os.environ, "BENCH_SANDBOX": name}
    monkeypatch.setenv("BENCH_SANDBOX", name)
    monkeypatch.setenv("BENCH_EXEC", "check")
    words = [sys.executable, "-c", "input()"]
    box = task.toolbox(FolderSandbox(tmp_path, dict(task.files)))
    for mark, folder, code in (
        ("agent", tmp_path, -9),
        ("agent", tmp_path.parent, 0),
        ("check", tmp_path, 0),
    ):
        environment["BENCH_EXEC"] = mark
        with subprocess.Popen(words, cwd=folder, env=environment, stdin=subprocess.PIPE) as left:
            asyncio.run(task.check(box, ["fixed"]))
            with contextlib.suppress(BrokenPipeError):
                left.communicate(b"\n", timeout=20)
        assert left.returncode == code


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

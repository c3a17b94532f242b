import asyncio

import pytest

from tests.unit.workloads.agents.tasks.folder_sandbox import FolderSandbox
from workloads.agents.tasks.repair_tools import (
    ALL_TESTS,
    MOST_TEXT,
    NO_PYTHON,
    RepairToolbox,
    clipped,
    line_of_tests,
    said,
)
from workloads.sandboxes.contract import Executed, SandboxError

FILES = {"a.txt": "one\ntwo\none\n", "empty.txt": ""}


@pytest.fixture
def box(tmp_path):
    return RepairToolbox(FolderSandbox(tmp_path, FILES))


def call(box, name, **arguments):
    return asyncio.run(box.call(name, arguments))


def test_bash(box):
    assert call(box, "bash", command="cat a.txt") == "one\ntwo\none"
    assert call(box, "bash", command="true") == "(no output)"
    assert call(box, "bash", command="echo no >&2; exit 3") == "no\n[exit status 3]"


def test_files(box):
    assert call(box, "read_file", path="empty.txt") == "(empty)"
    assert call(box, "write_file", path="d/b.txt", content="x\ny\n") == "Wrote d/b.txt, 2 lines."
    assert call(box, "read_file", path="d/b.txt") == "x\ny\n"
    assert call(box, "replace", path="a.txt", old="two\n", new="2\n") == "Wrote a.txt, 3 lines."
    assert call(box, "read_file", path="a.txt") == "one\n2\none\n"


@pytest.mark.parametrize(
    ("name", "arguments", "why"),
    [
        ("fly", {}, "no tool 'fly'; there are bash"),
        ("bash", {}, "bash wants 'command'"),
        ("bash", {"command": 1}, "must be string"),
        ("read_file", {"path": "none"}, "No such file"),
        ("write_file", {"path": "../x", "content": ""}, "outside"),
        ("replace", {"path": "none", "old": "a", "new": "b"}, "No such file"),
        ("replace", {"path": "a.txt", "old": "one", "new": "b"}, "is 2 times in a.txt"),
        ("replace", {"path": "a.txt", "old": "three", "new": "b"}, "is not in a.txt"),
        ("replace", {"path": "a.txt", "old": "", "new": "b"}, "is not in a.txt"),
        ("run_tests", {"module": "x; rm -rf /"}, "no name of a module"),
    ],
)
def test_failures_are_text_and_change_nothing(box, name, arguments, why):
    assert why in call(box, name, **arguments)
    assert call(box, "read_file", path="a.txt") == FILES["a.txt"]


@pytest.mark.parametrize("module", ["test_a", "tests.test_a", "tests/test_a.py", "test_a.py"])
def test_modules_by_any_name(module):
    assert line_of_tests(module).endswith("-m unittest tests.test_a")


def test_all_tests():
    assert line_of_tests("") == ALL_TESTS


class Gone:
    async def exec(self, command, **_):
        raise SandboxError("it is gone")


class Bare:
    """A container with a shell and nothing else."""

    async def exec(self, command, **_):
        return Executed(127, "sh: python3: not found\n", 0.01)


def test_a_sandbox_that_is_gone_is_an_error():
    with pytest.raises(SandboxError):
        call(RepairToolbox(Gone()), "bash", command="ls")


def test_a_sandbox_without_python_says_so():
    assert call(RepairToolbox(Bare()), "run_tests") == f"Error: {NO_PYTHON}."


def test_what_was_killed():
    assert said(Executed(-9, "so far\n", 30.2, timed_out=True)) == "so far\n[killed after 30 s]"


def test_long_output_loses_its_middle():
    text = "a" * MOST_TEXT + "end"
    assert clipped(text).endswith("end")
    assert "[3 characters left out]" in clipped(text)
    assert clipped("short") == "short"

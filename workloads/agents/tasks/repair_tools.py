"""Tools to repair a small repository with: a shell, files, tests. All of them run in the task's sandbox."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from workloads.agents.contract import ToolSpec
from workloads.agents.tasks.arguments import wrong_arguments
from workloads.sandboxes.contract import Executed, Sandbox, SandboxError

UNITTEST = "find . -name __pycache__ -prune -exec rm -rf {} +; python3 -B -m unittest"
"""Without compiled files: after two edits within a second those may be of the first one."""
ALL_TESTS = f"{UNITTEST} discover -s tests -t ."
COMMAND_S = 30.0
"""A command that takes longer is killed."""
MOST_TEXT = 8_000
"""Characters of an answer; of longer ones the middle is left out, their end often says why."""
NO_PYTHON = "there is no python3 in this sandbox: the tasks of repair need one (an image with Python)"
_NOT_FOUND = 127
_NAME = re.compile(r"[A-Za-z_][\w.]*")


def _text(description: str) -> dict[str, Any]:
    return {"type": "string", "description": description}


def _spec(name: str, description: str, /, optional: Sequence[str] = (), **arguments: str) -> ToolSpec:
    properties = {key: _text(said) for key, said in arguments.items()}
    required = [key for key in arguments if key not in optional]
    return ToolSpec(name, description, {"type": "object", "properties": properties, "required": required})


_PATH = "Path in the repository."
SPECS = (
    _spec("bash", "Run a line of shell in the repository.", command="The line."),
    _spec("read_file", "Read a file.", path=_PATH),
    _spec("write_file", "Write a file in place of what it holds.", path=_PATH, content="All of its text."),
    _spec(
        "replace",
        "Replace a piece of a file. It must be in there exactly once.",
        path=_PATH,
        old="The piece, with its blanks and line ends.",
        new="What comes in its place.",
    ),
    _spec(
        "run_tests",
        "Run the tests of the repository, or those of one module.",
        optional=("module",),
        module="A module of tests/, like test_pages.",
    ),
)


class RepairToolbox:
    """``SPECS`` on one sandbox."""

    specs: Sequence[ToolSpec] = SPECS

    def __init__(self, sandbox: Sandbox) -> None:
        self.sandbox = sandbox
        self._specs = {spec.name: spec for spec in SPECS}

    async def call(self, name: str, arguments: Mapping[str, Any]) -> str:
        """What the tool says. Raises SandboxError only where the sandbox is gone."""
        if name not in self._specs:
            return f"There is no tool '{name}'; there are {', '.join(self._specs)}."
        if wrong := wrong_arguments(self._specs[name], arguments):
            return f"Error: {wrong}."
        return str(await getattr(self, f"_{name}")(**arguments))

    async def _bash(self, command: str) -> str:
        return said(await self.sandbox.exec(command, timeout_s=COMMAND_S))

    async def _read_file(self, path: str) -> str:
        try:
            return clipped(await self.sandbox.read(path)) or "(empty)"
        except SandboxError as error:
            return f"Error: {error}"

    async def _write_file(self, path: str, content: str) -> str:
        try:
            await self.sandbox.write(path, content)
        except SandboxError as error:
            return f"Error: {error}"
        return f"Wrote {path}, {len(content.splitlines())} lines."

    async def _replace(self, path: str, old: str, new: str) -> str:
        try:
            text = await self.sandbox.read(path)
        except SandboxError as error:
            return f"Error: {error}"
        found = text.count(old) if old else 0
        if found != 1:
            times = f"{found} times" if found else "not"
            return f"Error: the old text is {times} in {path}; it must be there once. Nothing was changed."
        return await self._write_file(path, text.replace(old, new))

    async def _run_tests(self, module: str = "") -> str:
        try:
            command = line_of_tests(module)
        except ValueError as error:
            return f"Error: {error}."
        done = await self.sandbox.exec(command, timeout_s=COMMAND_S)
        return f"Error: {NO_PYTHON}." if lacks_python(done) else said(done)


def line_of_tests(module: str) -> str:
    """The shell line that runs the tests of a module, "" of all. Raises ValueError for no name of one."""
    name = module.removesuffix(".py").removeprefix("tests/").removeprefix("tests.")
    if not name:
        return ALL_TESTS
    if not _NAME.fullmatch(name):
        raise ValueError(f"{module!r} is no name of a module of tests/")
    return f"{UNITTEST} tests.{name}"


def lacks_python(done: Executed) -> bool:
    """Whether the shell did not find it."""
    return done.code == _NOT_FOUND and "python3" in done.output


def said(done: Executed) -> str:
    """A command's output as the model is told of it."""
    told = clipped(done.output.rstrip("\n")) or "(no output)"
    if done.timed_out:
        return f"{told}\n[killed after {done.seconds:.0f} s]"
    return f"{told}\n[exit status {done.code}]" if done.code else told


def clipped(text: str) -> str:
    """At most ``MOST_TEXT`` characters and a line that says how many are left out."""
    if len(text) <= MOST_TEXT:
        return text
    half = MOST_TEXT // 2
    return f"{text[:half]}\n[{len(text) - 2 * half} characters left out]\n{text[-half:]}"


def shell_line(name: str, arguments: Mapping[str, str]) -> str:
    """A tool call as a line of shell that does the same, for agents that have a shell and nothing else."""
    if name == "bash":
        return arguments["command"]
    if name == "run_tests":
        return line_of_tests(arguments.get("module", ""))
    if name == "read_file":
        return f"cat {shlex.quote(arguments['path'])}"
    if name == "write_file":
        return f"printf %s {shlex.quote(arguments['content'])} > {shlex.quote(arguments['path'])}"
    if name == "replace":
        edit = (
            "import sys; path, old, new = sys.argv[1:]; text = open(path).read(); "
            "assert text.count(old) == 1; open(path, 'w').write(text.replace(old, new))"
        )
        words = (edit, arguments["path"], arguments["old"], arguments["new"])
        return f"python3 -c {' '.join(map(shlex.quote, words))}"
    raise ValueError(f"no tool {name!r}")

"""Agents, tasks and sandboxes that do one odd thing each, for tests of the host: ``pkg.mod:NAME``."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from workloads.agents.contract import AgentError, BudgetUsed, ToolSpec, Verdict
from workloads.agents.threads import behind_door
from workloads.sandboxes.contract import SandboxError, SandboxEvent

HERE = "tests.unit.workloads.agents.host_parts"


class Counter:
    """A tool with state: ``add`` adds; others are unknown."""

    specs = (ToolSpec("add", "Add n.", {"type": "object", "properties": {"n": {"type": "integer"}}}),)

    def __init__(self, sandbox):
        self.sandbox = sandbox
        self.total = 0

    async def call(self, name, arguments):
        if name == "break":
            raise ValueError("a tool that breaks")
        if name == "hang":
            await asyncio.sleep(60)
        self.total += arguments["n"]
        return str(self.total)


@dataclass(frozen=True)
class Sum:
    name: str
    wanted: int
    system: str = ""
    turns: tuple = ("Add up.",)
    files: dict = field(default_factory=lambda: {"a.txt": "a"})
    solution: tuple = ()
    data: dict = field(default_factory=dict)

    def toolbox(self, sandbox):
        return Counter(sandbox)

    async def check(self, toolbox, answers):
        solved = toolbox.total == self.wanted and answers == [str(self.wanted)]
        return Verdict(solved, "" if solved else f"{toolbox.total} is not {self.wanted}")


@dataclass(frozen=True)
class Sums:
    name: str = "sums"
    needs_sandbox: bool = False
    lacking: str = ""

    def missing(self, data):
        return self.lacking

    def tasks(self, n, seed, data):
        return [Sum(f"sum-{i}", i) for i in range(n)]


SUMS = Sums()
SUMS_IN_SANDBOX = Sums(needs_sandbox=True)
NO_SUMS = Sums(lacking="there is no data; get it at the well")


@dataclass(frozen=True)
class Agent:
    """Adds up in ones; what it does besides is said by ``how``."""

    how: str = "well"
    name = "fake"
    suites = (f"{HERE}:SUMS",)
    threads = False
    needs = ()

    def script(self, task, seed):
        raise NotImplementedError

    async def run(self, task, chat, toolbox, budget, told):
        await getattr(self, self.how)(task, toolbox, told)
        for _ in range(task.wanted):
            await toolbox.call("add", {"n": 1})
        return [str(task.wanted)]

    async def well(self, task, toolbox, told): ...

    async def slowly(self, task, toolbox, told):
        await asyncio.sleep(0.2)

    async def raising(self, task, toolbox, told):
        if task.wanted == 1:
            raise RuntimeError("out of\ntea")
        if task.wanted == 2:
            raise AgentError("call 3 of thread main was lost")
        if task.wanted == 3:
            sys.exit("no more")
        if task.wanted == 4:
            raise BudgetUsed("more than 5 calls")

    async def hanging(self, task, toolbox, told):
        if task.wanted == 1:
            await asyncio.sleep(3600)

    async def stuck(self, task, toolbox, told):
        """In three ways: an await, one that does not heed, a thread."""
        while task.wanted == 2:
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                continue
        if task.wanted == 3:
            await behind_door(lambda door: time.sleep(3600))
        await self.hanging(task, toolbox, told)

    async def blocking_the_loop(self, task, toolbox, told):
        time.sleep(3600)

    async def printing(self, task, toolbox, told):
        print('{"event": "over", "t": 0, "leaks": []}', flush=True)
        os.write(1, b"not an event\n")
        subprocess.run(["echo", "nor this"], check=True)
        assert sys.stdin.read() == ""

    async def telling(self, task, toolbox, told):
        begin = time.monotonic()
        await toolbox.call("add", {"n": 0})
        told.tool("side", "add", begin, time.monotonic(), True)
        told.tool("side", "think", begin, time.monotonic(), True)
        told.notes["thoughts"] = 1
        assert "tool break failed" not in await toolbox.call("break", {})
        await toolbox.call("hang", {})

    async def leaving(self, task, toolbox, told):
        """Two processes behind: of a session of its own, and one whose parent ends."""
        mine = f"{os.getpid()}.{task.wanted}"
        subprocess.Popen(["sleep", f"61{mine}"], start_new_session=True)
        subprocess.run(["sh", "-c", f"sleep 62{mine} & :"], check=True)

    async def in_its_folder(self, task, toolbox, told):
        """Its files are there, those of others are not; nobody leaves before all have looked."""
        box = toolbox.sandbox
        await box.write("own", str(task.wanted))
        await asyncio.sleep(0.3)
        done = await box.exec('cat a.txt own; ls | wc -l; [ -n "$BENCH_PORTS" ]')
        assert (done.code, done.output) == (0, f"a{task.wanted}2\n"), done

    async def in_sandbox(self, task, toolbox, told):
        await toolbox.sandbox.exec("true")


AGENT = Agent()
NEEDY = type("Needy", (Agent,), {"needs": ("no_such_module",)})()


class FakeSandbox:
    """It is a file ``there`` in its folder, from ``init`` to ``teardown``."""

    def __init__(self, options, told):
        self.name, self.ports = options.name, ()
        self._options, self._told = options, told
        self._file = options.folder / "there"

    def _happened(self, what, ok=True):
        self._told(SandboxEvent(time.monotonic(), self.name, what, 0.0, ok))

    async def init(self):
        if self.name.endswith("-5"):
            raise SandboxError(f"{self.name}: no room")
        self._file.write_text(self._options.owner)
        self._happened("init")

    async def exec(self, command, *, timeout_s=60.0, stdin="", cwd=""):
        self._happened("exec")

    async def teardown(self):
        await asyncio.sleep(0.05)
        self._file.unlink(missing_ok=True)
        self._options.folder.rmdir()
        self._happened("teardown")


class FakeKind:
    name = "fake"

    def missing(self):
        return ""

    def make(self, options, told):
        return FakeSandbox(options, told)

    def sweep(self, owner=None):
        return []


SANDBOX = FakeKind()


class OpenPort(FakeSandbox):
    """Its teardown forgets to close the port that it was dealt."""

    def _happened(self, what, ok=True):
        if what == "init":
            self.socket = socket.create_server(("127.0.0.1", 0))
            OPEN.append(self.socket)
        port = self.socket.getsockname()[1]
        self._told(SandboxEvent(time.monotonic(), self.name, what, 0.0, ok, ports=(port,)))


OPEN: list[socket.socket] = []
PORT_LEFT = type("PortKind", (FakeKind,), {"make": lambda self, options, told: OpenPort(options, told)})()


def there(folder):
    """Sandboxes that are there."""
    return sorted(path.parent.name for path in Path(folder).glob("*/there"))

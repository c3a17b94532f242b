"""In which phase of a program a sandbox was used: what a check does is no cost of the run."""

import asyncio
import json
import os
from dataclasses import dataclass, replace

from tests.unit.workloads.agents.host_parts import Sum
from workloads.agents.contract import Verdict
from workloads.agents.events import Events
from workloads.agents.job import Job
from workloads.agents.programs import Programs
from workloads.sandboxes.contract import SandboxEvent


class Box:
    """Says what is asked of it; nothing happens."""

    ports = ()

    def __init__(self, options, told):
        self.name, self._told = options.name, told

    def _say(self, what):
        self._told(SandboxEvent(0.0, self.name, what, 0.0, True))

    async def init(self):
        self._say("init")

    async def exec(self, command):
        await asyncio.sleep(0)  # others come in between
        self._say("exec")

    async def teardown(self):
        self._say("retry")
        self._say("teardown")


class Kind:
    name = "box"
    make = staticmethod(Box)


@dataclass(frozen=True)
class Checked(Sum):
    async def check(self, toolbox, answers):
        await toolbox.sandbox.exec("test")
        if self.wanted:
            raise ValueError("a check that breaks")
        return Verdict(True)


class Execs:
    name = "execs"

    async def run(self, task, chat, tools, budget, told):
        await tools.sandbox.exec("ls")
        return [""]


def test_events_have_the_phase_they_happened_in(tmp_path):
    tasks = [replace(Checked("a", 0), files={}), Checked("b", 1), Checked("c", 0)]
    job = Job("execs", "sums", 3, 1, 1, "http://127.0.0.1:1", "m", str(tmp_path))
    reader, writer = os.pipe()
    programs = Programs(job, Execs(), tasks, Kind(), Events(writer))
    asyncio.run(programs.run())
    os.close(writer)
    with os.fdopen(reader) as said:
        events = [json.loads(line) for line in said]
    happened = [(e["program"], e["what"], e["phase"]) for e in events if e["event"] == "sandbox"]
    each = [
        ("init", "setup"),
        ("exec", "run"),
        ("exec", "check"),
        ("retry", "teardown"),
        ("teardown", "teardown"),
    ]
    assert happened == [(program, *one) for program in range(3) for one in each]
    ended = [(e["outcome"], e["success"]) for e in events if e["event"] == "ended"]
    assert ended == [("finished", True), ("finished", False), ("finished", True)]

"""What an agent host is asked to do, and what it says meanwhile: JSON lines (docs/agents.md, The host).

Agents and their tools run in a process of their own, ``python -m workloads.agents.host``, which may be
another Python (that of the extra ``agents``). Its standard input is one line with a job, and stays open: its
end, or SIGTERM, tells it to tear everything down and leave. Its standard output is one event a line. Times
are of CLOCK_MONOTONIC in seconds, which all processes of a machine share.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from workloads.agents.contract import Budget

EVENTS = ("ready", "began", "tool", "sandbox", "ended", "over", "failed")
"""ready: {versions}; began: {program, task}; tool: {program, thread, name, t_end, ok}, ``t`` is its begin;
sandbox: {program, phase, **SandboxEvent}, phase one of setup, run, check, teardown;
ended: {program, outcome, success, why, notes}; over: {leaks}; failed: {why}, the host
cannot go on. Each has ``event`` and ``t``."""
OUTCOMES = ("finished", "failed", "timeout")
"""Of a program: it came to its end (right or wrong), a call or a tool broke, its budget was used up."""


@dataclass(frozen=True)
class Job:
    """``n`` programs of ``agent`` on the tasks of ``suite``, ``concurrency`` of them at all times.

    Program p asks under ``url``/p/P/THREAD/v1 (``workloads.agents.relay``). ``sandbox``: name of a kind, used
    where the suite needs one; ``folder``: where sandboxes are kept; ``owner``: as in ``SandboxOptions``, that
    of no other run; ``limits``: more fields of ``SandboxOptions``; ``share``: so many programs share one
    (program p has that of number p // ``share``). ``data``: folder of data sets, "" none.
    ``agents`` and ``suites`` from elsewhere are named ``pkg.mod:NAME``. ``parameters``: of the agent, as
    ``catalog.agent`` takes them.
    """

    agent: str
    suite: str
    n: int
    seed: int
    concurrency: int
    url: str
    model: str
    folder: str
    key: str = ""
    sandbox: str = "bwrap"
    owner: str = ""
    data: str = ""
    limits: Mapping[str, Any] = field(default_factory=dict)
    share: int = 1
    parameters: Mapping[str, Any] = field(default_factory=dict)
    budget: Budget = field(default_factory=Budget)

    def line(self) -> str:
        """As the host reads it."""
        return json.dumps(asdict(self))

    @classmethod
    def of(cls, line: str) -> Job:
        """Raises ValueError or TypeError for what is none."""
        said = json.loads(line)
        return cls(**{**said, "budget": Budget(**said.get("budget", {}))})


def program_url(url: str, program: int, thread: str) -> str:
    """Base URL under which calls are ``thread``'s of ``program``; dialects add /chat/completions, ..."""
    return f"{url}/p/{program}/{thread}/v1"

"""One cell of agents: their host, the relay and a deployment, and what those say into the event log.

A run whose client was late is not made again, as one of our own driver is: agents and their tools are part of
what is measured. How late relay and loop were is told (client.json, and a warning where it is much).
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench.affinity import on_cores
from bench.agents.away import Away, Heard
from bench.agents.entries import entries_left
from bench.agents.outcomes import FILE, outcomes, said
from bench.agents.plan import AgentPlan
from bench.agents.rows import AgentRun, live_run
from bench.drivers.audit import Audit, LoopWatch
from bench.drivers.calls import CallFailed
from bench.drivers.loop import run as run_loop
from bench.errors import InvalidRun, MissingError
from bench.files import write_json
from bench.live.deployment import Deployment, cores
from bench.live.drive import Measured, answered, gathered, run_name, told
from bench.live.goodbyes import Goodbyes
from bench.live.kept import between, kept
from bench.records import RunEnd, Sink
from bench.run import Progress
from systems.engines.vllm_virtual import EngineUnavailable
from systems.slots import DEFAULTS
from workloads.agents.host_process import HostGone, HostProcess
from workloads.agents.job import Job
from workloads.agents.relay.contract import RelayCall
from workloads.agents.relay.server import Relay
from workloads.sandboxes.catalog import sweep

CHECK_S = 1.0
"""So often it is looked whether engines and gateway are alive: agents would go on asking dead ones."""
HOST = "agents"
"""Folder, in that of the results, of what hosts printed and of sandboxes while they are there."""


def drive(plan: AgentPlan, sink: Sink, progress: Progress | None, deployment: Deployment) -> RunEnd:
    """Run the plan's agents through the deployment, into the event log.

    Raises MissingError if something of the deployment, or the host, dies (with its last words), InvalidRun if
    logs and relay contradict each other.
    """
    removed = sweep()
    run, measured = measure(plan, deployment, progress)
    rows = measured.rows()
    end = told(plan, sink, measured, rows)
    found = outcomes(plan, run, measured.logs, rows)
    write_json(plan.folder / FILE, found)
    told_more = _joined(end.said, said(found, run))
    told_more["warnings"] += [f"left by a run that is gone: {line}" for line in removed]
    return end._replace(said=told_more)


def _joined(ours: Any, more: Any) -> dict[str, Any]:
    """Metrics and warnings of both."""
    return {
        **ours, **more, "metrics": {**ours["metrics"], **more["metrics"]},
        "warnings": [*ours["warnings"], *more["warnings"]],
    }  # fmt: skip


def measure(
    plan: AgentPlan, deployment: Deployment, progress: Progress | None = None
) -> tuple[AgentRun, Measured]:
    """Run them once. Raises as ``drive``."""
    unflushed = deployment.flush()
    before = run_loop(kept(deployment)) if plan.spec.keeps else None
    deployment.runs += 1
    name = run_name(plan.cell, deployment.runs)
    deployment.logs.mark()
    if deployment.front_log is not None:
        deployment.front_log.mark()
    try:
        with on_cores(cores()[1] if plan.config.replicas == 1 else frozenset()):
            run = run_loop(Driven(plan, deployment, name, progress).run())
            if deployment.front is not None:
                run = replace(run, left=entries_left(deployment.front.url, name))
        seen = live_run(run, [])
        logs = gathered(deployment, seen) if deployment.logs.there else []
    except (EngineUnavailable, HostGone) as error:
        raise MissingError(str(error)) from None
    except CallFailed as error:
        raise InvalidRun(str(error)) from error
    books = None
    if logs and deployment.front_log is not None:
        books = deployment.front_log.gather(name, answered(seen))
    counts = {} if before is None else between(before, run_loop(kept(deployment)))
    return run, Measured(live_run(run, logs), logs, [], unflushed, books, counts)


class Driven:
    """State of one run: what relay and host say while it goes on."""

    def __init__(self, plan: AgentPlan, deployment: Deployment, name: str, progress: Progress | None) -> None:
        self.plan = plan
        self.deployment = deployment
        self.name = name
        self.progress = progress
        self.calls: list[RelayCall] = []
        self.events: list[dict[str, Any]] = []
        self._done = 0
        self._goodbyes: Goodbyes | None = None
        self._away: Away | None = None

    async def run(self) -> AgentRun:
        """Until the host says that all is over. Raises EngineUnavailable, HostGone, InvalidRun."""
        wall, origin, cpu = time.time(), time.monotonic(), time.process_time()
        async with AsyncExitStack() as stack:
            if self.deployment.front is not None:
                goodbyes = Goodbyes(self.deployment.url, self.deployment.third_party)
                self._goodbyes = await stack.enter_async_context(goodbyes)
            relay = await stack.enter_async_context(self._relay())
            watch = await stack.enter_async_context(LoopWatch())
            host = await stack.enter_async_context(self._host(relay.url))
            await self._hear(host)
            took = time.monotonic() - origin
        audit = Audit.of(
            [call.t_send - call.t_arrive for call in self.calls if call.t_send == call.t_send],
            watch.lags, (time.process_time() - cpu) / took, most_open(self.calls),
        )  # fmt: skip
        versions: dict[str, str] = next(
            (e.get("versions", {}) for e in self.events if e["event"] == "ready"), {}
        )
        return AgentRun(
            self.name, self.plan.agent.name, wall, origin, took, self.calls, self.events, audit, versions
        )

    def _relay(self) -> Relay:
        scripts: Any = self.plan.scripts() or None
        if scripts is not None and self._keeps:
            heard = Heard()
            scripts = heard.around(scripts)
            self._away = Away(heard, self._goodbyes_of, self.name)
        return Relay(
            self.deployment.url, self.plan.config.model, run=self.name, scripts=scripts, told=self._called,
            cache_salt=self.name,
        )  # fmt: skip

    @property
    def _keeps(self) -> bool:
        return self._goodbyes is not None and self.plan.spec.retention != DEFAULTS["retention"]

    def _goodbyes_of(self) -> Goodbyes:
        assert self._goodbyes is not None
        return self._goodbyes

    def _host(self, url: str) -> HostProcess:
        folder = (self.plan.config.out / HOST / self.plan.cell).resolve()
        return HostProcess(
            job_of(self.plan, url, self.name, folder / "sandboxes"), folder / "host.log",
            python=str(self.plan.guests.python), search_path=[str(Path.cwd())],
        )  # fmt: skip

    async def _hear(self, host: HostProcess) -> None:
        """The host's events, while somebody looks whether all else is alive."""
        listening = asyncio.create_task(self._listen(host))
        try:
            while not (await asyncio.wait([listening], timeout=CHECK_S))[0]:
                self.deployment.check()
            await listening
            self.deployment.check()  # programs whose engine is gone fail, and then all is over, too
        finally:
            listening.cancel()
            with contextlib.suppress(asyncio.CancelledError, HostGone, InvalidRun):
                await listening

    async def _listen(self, host: HostProcess) -> None:
        async for event in host.events():
            self.events.append(event)
            if event["event"] == "began":
                self._same_task(event)
            elif event["event"] == "ended":
                self._ended(event["program"])

    def _same_task(self, began: dict[str, Any]) -> None:
        """The host makes the tasks again: scripts are of ours."""
        expected = self.plan.tasks[began["program"]].name
        if began["task"] != expected:
            raise InvalidRun(
                f"program {began['program']} has task {began['task']} in the agents' host and {expected} "
                "here: the suite is not the same twice"
            )

    def _ended(self, number: int) -> None:
        self._done += 1
        program = f"{self.name}.{number}"
        self.deployment.over(program)
        if self._goodbyes is not None:
            self._goodbyes.say(program)
        if self.progress is not None:
            self.progress(self._done, len(self.plan.tasks))

    def _called(self, call: RelayCall) -> None:
        self.calls.append(call)
        if self._away is not None:
            self._away.called(call)


def job_of(plan: AgentPlan, url: str, name: str, folder: Path) -> Job:
    """What the host is asked; ``folder``: of its sandboxes."""
    asked, config = plan.asked, plan.config
    return Job(
        asked.agent, asked.suite or plan.suite.name, len(plan.tasks), config.seed, config.concurrency or 1,
        url, config.model, str(folder), sandbox=asked.sandbox, owner=name, data=str(asked.data or ""),
        parameters=dict(asked.parameters), budget=asked.budget, limits=dict(asked.limits), share=asked.share,
    )  # fmt: skip


def most_open(calls: list[RelayCall]) -> int:
    """Calls that were in flight at once, at most."""
    steps = sorted(
        step
        for call in calls
        if call.t_last == call.t_last
        for step in ((call.t_arrive, 1), (call.t_last, -1))
    )
    most = now = 0
    for _, step in steps:
        now += step
        most = max(most, now)
    return most

"""One live cell: programs through a deployment, and what its logs and the client say into the event log."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from bench.affinity import on_cores
from bench.calibration.steps import HEAD, steps_of
from bench.drivers.completions import CallFailed, Completions
from bench.drivers.effects import ProgramError
from bench.drivers.live import drive_live
from bench.drivers.live_records import LiveRun
from bench.drivers.loop import run as run_loop
from bench.drivers.stream import Streaming
from bench.drivers.token_ids import TokenIds
from bench.errors import InvalidRun, MissingError
from bench.files import write_json
from bench.live.books import Books
from bench.live.deployment import Deployment, cores
from bench.live.fronted import Fronted
from bench.live.goodbyes import Goodbyes
from bench.live.kept import between, kept
from bench.live.lag import lag
from bench.live.locust import by_locust
from bench.live.logs import PATIENCE_S, POLL_S, EngineLog, unwritten
from bench.live.plan import LivePlan
from bench.live.rows import Rows, rows_of
from bench.live.warm import nudge
from bench.records import RunEnd, Sink
from bench.run import Progress
from bench.stats import Estimate
from systems.catalog import SystemSpec, build_environment
from systems.engines.vllm_virtual import EngineUnavailable
from systems.gateway.door import NO_CONTROL
from systems.protocols import Environment
from systems.slots import DEFAULTS

SALT = "live"
"""Of the token ids: a program says the same in every cell, and ``cache_salt`` keeps cells apart."""
ATTEMPTS = 3
"""A run whose client was late is made again, so often in all; what is discarded is in client.json."""
UNKNOWN = ("wait.", "exec.", "kv.", "preemptions.", "utilisation.")
"""Numbers that only a scheduler of ours can tell."""
NO_LOGS = "not measured: these engines have no scheduler of ours to log it"


@dataclass(frozen=True)
class Measured:
    """One run: what the client saw, and what each engine logged of it (nothing: it has no log of ours).

    ``late``: audits of runs before this one that do not count; ``unflushed``: why caches were not emptied;
    ``books``: our gateway's, where they are read; ``kept``: engines' own counters, where they keep KV."""

    live: LiveRun
    logs: Sequence[EngineLog]
    late: Sequence[Mapping[str, Any]]
    unflushed: str
    books: Books | None = None
    kept: Mapping[str, int] = field(default_factory=dict)

    def rows(self) -> Rows:
        """For the event log."""
        return rows_of(self.live, self.logs, self.books.held if self.books else {})


def drive(plan: LivePlan, sink: Sink, progress: Progress | None, deployment: Deployment) -> RunEnd:
    """Run the plan's programs through the deployment, into the event log. Raises as ``measure``."""
    run = measure(plan, deployment, progress)
    return told(plan, sink, run, run.rows())


def told(plan: LivePlan, sink: Sink, run: Measured, rows: Rows) -> RunEnd:
    """What a run left, into the event log and the cell's folder."""
    rows.send(sink)
    if run.books is not None:
        sink.decisions(run.books.decisions(run.live.origin))
    sink.decisions(run.live.decisions)
    _keep(plan.folder, run)
    return RunEnd(run.live.took, len(rows.programs), len(rows.calls), rows.totals, _said(run))


def measure(plan: LivePlan, deployment: Deployment, progress: Progress | None = None) -> Measured:
    """Run the plan's programs; again, at most ``ATTEMPTS`` times in all, if the client was late.

    Raises MissingError if something of the deployment dies (with its last words), InvalidRun if a call or
    program fails or the client is late each time.
    """
    late: list[Mapping[str, Any]] = []
    while True:
        unflushed = deployment.flush()
        before = run_loop(kept(deployment)) if plan.spec.keeps else None
        live, logs, books = _once(plan, deployment, progress)
        if live.audit.verdict != "invalid":
            counts = {} if before is None else between(before, run_loop(kept(deployment)))
            return Measured(live, logs, late, unflushed, books, counts)
        late.append(asdict(live.audit))
        if len(late) == ATTEMPTS:
            raise InvalidRun(f"the client could not keep up, {ATTEMPTS} times: {live.audit}")


def run_name(cell: str, number: int) -> str:
    """The name of a cell's run, also its cache salt: another one in every process, since an engine that could
    not be flushed still knows what an earlier run of the same cell told it. No word of a call's name has a
    dot or a hyphen."""
    return f"{cell}r{number}x{secrets.token_hex(4)}"


def _once(
    plan: LivePlan, deployment: Deployment, progress: Progress | None
) -> tuple[LiveRun, list[EngineLog], Books | None]:
    deployment.runs += 1
    name = run_name(plan.cell, deployment.runs)
    deployment.logs.mark()
    if deployment.front_log is not None:
        deployment.front_log.mark()
    try:
        with on_cores(cores()[1] if plan.config.replicas == 1 else frozenset()):
            if plan.options.driver == "locust":
                live = by_locust(plan, deployment, name, SALT, progress)
            else:
                live = run_loop(_drive(plan, deployment, name, progress))
        logs = gathered(deployment, live) if deployment.logs.there else []
    except EngineUnavailable as error:
        raise MissingError(str(error)) from None
    except (CallFailed, ProgramError) as error:
        raise InvalidRun(str(error)) from error
    books = None
    if logs and deployment.front_log is not None:
        books = deployment.front_log.gather(name, answered(live))
    return live, logs, books


def answered(live: LiveRun) -> set[str]:
    """PROGRAM.THREAD.INDEX of the calls that were answered."""
    return {call.name.removeprefix(f"{live.name}.") for call in live.calls if call.answered}


def gathered(deployment: Deployment, live: LiveRun) -> list[EngineLog]:
    """The engines' logs; again while a call that they computed has no row: they have yet to hear that it was
    given up. Raises InvalidRun, CallFailed."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        if not all(call.answered for call in live.calls):
            run_loop(_nudged(deployment))
        logs = deployment.logs.gather(live.name, answered(live))
        if not (lost := unwritten(logs)):
            return logs
        if time.monotonic() > deadline:
            raise InvalidRun(f"run {live.name}: engines computed calls that have no row, {min(lost)} first")
        time.sleep(POLL_S)


async def _drive(plan: LivePlan, deployment: Deployment, name: str, progress: Progress | None) -> LiveRun:
    specs, done = plan.programs.programs, 0
    async with AsyncExitStack() as stack:
        goodbyes = None
        if deployment.front is not None:
            goodbyes = await stack.enter_async_context(Goodbyes(deployment.url, deployment.third_party))

        def over(program: str) -> None:
            nonlocal done
            done += 1
            deployment.over(program)
            if goodbyes is not None:
                goodbyes.say(program)
            if progress is not None:
                progress(done, len(specs))

        client = await stack.enter_async_context(client_of(plan, deployment))
        keeps = goodbyes is not None and plan.spec.retention != DEFAULTS["retention"]
        return await drive_live(
            specs, plan.times, client, TokenIds(deployment.vocabulary, SALT),
            concurrency=plan.config.concurrency, run=name, cache_salt=name, watch=deployment.check, over=over,
            away=goodbyes.away if goodbyes is not None and keeps else None,
            environment=environment_of(plan.spec),
        )  # fmt: skip


def environment_of(spec: SystemSpec) -> Environment | None:
    """The policy of the tools' sandboxes; None where there are none."""
    return None if spec.environment == DEFAULTS["environment"] else build_environment(spec)


async def _nudged(deployment: Deployment) -> None:
    """Every engine has written what it logged of calls that were given up."""
    for engine in deployment.engines:
        await nudge(engine.url, deployment.model)


def client_of(plan: LivePlan, deployment: Deployment) -> Any:
    """The client that the knob ``live.client`` names."""
    kind = Completions if plan.options.client == "whole" else Streaming
    client = kind(deployment.url, deployment.model)
    return client if deployment.third_party is None else Fronted(client, deployment.third_party)


def _keep(folder: Path, run: Measured) -> None:
    """What no table has: the client's view of each call, its audits, and the steps for predictions."""
    live = run.live
    calls = [
        [c.program, c.thread, c.index, c.outcome, c.t_ready, c.t_sched, c.t_send, c.t_first, c.t_last]
        for c in live.calls
    ]
    columns = ["program", "thread", "index", "outcome", "t_ready", "t_sched", "t_send", "t_first", "t_last"]
    audit = {"audit": asdict(live.audit), "verdict": live.audit.verdict, "discarded": list(run.late)}
    write_json(folder / "client.json", {"run": live.name, **audit, "columns": columns, "calls": calls})
    write_json(folder / "steps.json", {"lag_s": lag(live, run.logs), "engines": plain_steps(run.logs)})


def plain_steps(logs: Sequence[EngineLog]) -> list[dict[str, Any]]:
    """Each engine's steps as plain data, without the names of their calls."""
    return [
        {
            "head": {k: log.head[k] for k in ("vllm", "scheduler", *HEAD) if k in log.head},
            "rows": [row[:4] for row in steps_of(log.head, [s for s in log.steps if s["calls"]]).rows],
        }
        for log in logs
    ]


def _said(run: Measured) -> dict[str, Any]:
    """What the summary has beside the tables' numbers."""
    audit, warnings = run.live.audit, []
    if audit.verdict != "ok":
        warnings.append(f"the client was {audit}: client-side times may be late")
    if run.late:
        warnings.append(
            f"{len(run.late)} runs before this one do not count: the client was late (client.json)"
        )
    if run.unflushed:
        warnings.append(f"prefix caches could not be flushed ({run.unflushed}); a salt keeps the cell apart")
    if not run.logs:
        warnings.append(f"wait, execution, cache hits, preemptions: {NO_LOGS}")
    books = run.books.against(run.logs) if run.books else {}
    if books and books["equal"] != books["programs"]:
        warnings.append(
            f"the gateway's table and the schedulers' logs differ in {books['programs'] - books['equal']} of "
            f"{books['programs']} programs"
        )
    told = run.books.said() if run.books else {}
    if stopped := told.get("gate_events", {}).get(f"drop: {NO_CONTROL}"):
        warnings.append(f"{stopped} pauses were to free KV and only stopped sending: {NO_CONTROL}")
    return {
        **({"books": books} if books else {}),
        **told,
        **({"kept": dict(run.kept)} if run.kept else {}),
        **({"environment": run.live.environment} if run.live.environment else {}),
        "client": {"verdict": audit.verdict, "text": str(audit)},
        "metrics": _seen(run.live),
        "warnings": warnings,
        "unknown": {} if run.logs else dict.fromkeys(UNKNOWN, NO_LOGS),
    }


def _seen(live: LiveRun) -> dict[str, Any]:
    """The client's own numbers: seconds to the first bytes of replies, and how late calls were sent."""
    first = [c.t_first - c.t_ready for c in live.calls if c.answered]
    found = {
        "client.ttft.mean": float(np.mean(first)) if first else float("nan"),
        "client.send_lag.p99": live.audit.send_lag[1],
        "client.cpu": live.audit.cpu,
    }
    return {name: Estimate(value)._asdict() for name, value in found.items()}

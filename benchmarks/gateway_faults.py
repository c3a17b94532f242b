"""Break everything around a gateway, then look whether its books are right and nothing is left.

    python benchmarks/gateway_faults.py [--seed N] [--seconds S] [--agents N] [--workers N] [--engine vllm]

Agents call through a gateway of two workers while, from a seed, workers are killed in the middle of
streams and restarted, their /metrics hangs, they stop answering, and clients hang up, come back or forget
their programs; every other agent keeps its connections from call to call. In the middle and at the end
everything is frozen (fake engines then send nothing) and compared: programs marked reasoning, in the
gateway's table and in its metrics, against the requests that are in flight *at the engines*. Then all
programs end, and last the gateway gets SIGTERM with streams open; calls that come then, on connections that
were kept and on a new one, must not get through.
Exit code 0 if every check holds, 1 if one does not. ``--engine vllm``: real vLLM (two servers, CPU).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.gateway_parts import processes  # noqa: E402
from benchmarks.gateway_parts.plan import Books, Fault, Plan, Verdict  # noqa: E402
from benchmarks.gateway_parts.storm import Ask, Reply, Storm, Wire, ask_for, until  # noqa: E402
from benchmarks.gateway_parts.victims import FakeVictim, Victim, vllm_victims  # noqa: E402
from systems.gateway.events_reader import read_events  # noqa: E402
from systems.gateway.options import GatewayOptions  # noqa: E402
from systems.gateway.process import GatewayProcess  # noqa: E402

SETTLE_S = 15.0
"""What was dropped or killed has left all books by then."""
DRAIN_S = 8.0
"""A gateway that was asked to end has ended by then."""
ALLOWED = {409, 502, 503, 504}
"""Statuses of a call whose engine died, that found none, or that another attempt took over."""
TURNED_AWAY = {("cut", 0), ("unreachable", 0), ("refused", 503)}
"""How calls end that come while the gateway ends: their connection is closed, or they are told."""


class Trial:
    """A gateway, its workers and a storm of clients."""

    def __init__(self, plan: Plan, victims: Sequence[Victim], folder: Path, model: str = "fake") -> None:
        self.plan = plan
        self.victims = victims
        self.log = folder / "events.jsonl"
        self.verdict = Verdict()
        options = GatewayOptions(
            tuple(victim.target() for victim in victims), system=plan.system, max_hold_s=10.0,
            poll_s=0.2, poll_limit_s=0.5, log=str(self.log),
        )  # fmt: skip
        self._folder = folder / "gateway"
        self.gateway = GatewayProcess(options, self._folder)
        self.storm = Storm(0, plan.seed, model)
        self._before: dict[str, float] = {}
        self._suffered: Counter[str] = Counter()
        self._killed = 0  # requests in flight at a worker when it was killed

    def start(self) -> None:
        """The gateway is up and has seen its workers."""
        self.gateway.begin()
        self.gateway.ready(processes.START_S)
        self.storm.port = urlsplit(self.gateway.url).port or 0
        self.pid = self.gateway.pid or 0

    async def run(self) -> Verdict:
        """All of it. The workers are up before and after."""
        await until(lambda: self._up() == len(self.victims), processes.START_S)
        await self._calm("baseline")
        self._before = await asyncio.to_thread(self._left)
        tasks = [asyncio.create_task(self.storm.agent(number)) for number in range(self.plan.agents)]
        try:
            for faults in self._halves():
                await self._break(faults)
                await self._frozen()
            self.storm.stop = True
            await asyncio.wait_for(asyncio.gather(*tasks), 90)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        self._judge_clients()
        await self.storm.end_all()
        await self._empty()
        await self._sigterm()
        return self.verdict

    def _halves(self) -> list[list[Fault]]:
        faults, middle = self.plan.faults(), self.plan.seconds / 2
        late = [fault._replace(at=fault.at - middle) for fault in faults if fault.at >= middle]
        return [[fault for fault in faults if fault.at < middle], late]

    async def _break(self, faults: Sequence[Fault]) -> None:
        """Do and undo each at its time; everything is whole again when it returns."""
        await asyncio.gather(*(self._one(fault) for fault in faults), asyncio.sleep(self.plan.seconds / 2))
        for victim in self.victims:
            await victim.repair()

    async def _one(self, fault: Fault) -> None:
        await asyncio.sleep(fault.at)
        victim = self.victims[fault.worker]
        self._killed += await victim.suffer(fault.kind)
        self._suffered[fault.kind] += 1
        say(f"{fault.kind} of worker {fault.worker}")
        await asyncio.sleep(fault.for_s)
        await victim.repair()
        say(f"worker {fault.worker} is well again")

    async def _frozen(self) -> None:
        """Nobody gets a token; the books must come to agree on what is in flight, and something is."""
        say("everything is frozen")
        await until(lambda: self._up() == len(self.victims), SETTLE_S)
        seen: list[Books] = []
        for victim in self.victims:
            await victim.hold(True)

        def agree() -> bool:
            seen[:] = [self.books()]
            return seen[0].agree() and seen[0].calls > 0

        held = await until(agree, SETTLE_S)
        self.verdict.check(
            "programs marked reasoning == requests in flight", held, seen[-1] if seen else "no answer"
        )
        for victim in self.victims:
            await victim.hold(False)

    def books(self) -> Books:
        """One look at all of them. Raises OSError where one does not answer."""
        flights = [victim.in_flight() for victim in self.victims]
        page = self._page("/programs?state=reasoning&limit=10000")
        rows = page["programs"]
        numbers = self.metrics()
        known = [flight.names for flight in flights]
        names = None if None in known else frozenset(name for one in known if one for name in one if name)
        return Books(
            names, sum(flight.calls for flight in flights),
            frozenset(row["name"] for row in rows if row["name"]), len(rows),
            sum(row["in_flight"] for row in rows),
            int(numbers['gateway_programs{state="reasoning"}']),
            int(sum(value for name, value in numbers.items() if name.startswith("gateway_calls_in_flight{"))),
            page["gate"]["reasoning"],
        )  # fmt: skip

    def metrics(self) -> dict[str, float]:
        """Sample -> value of the gateway's page."""
        text = processes.fetch(self.gateway.url + "/metrics").decode()
        return {
            name: float(value) for name, value in re.findall(r"^(\w+(?:\{.*?\})?) (\S+)$", text, re.MULTILINE)
        }

    def _page(self, path: str) -> dict[str, Any]:
        return dict(json.loads(processes.fetch(self.gateway.url + path)))

    def _up(self) -> int:
        return sum(engine["state"] == "up" for engine in self._page("/engines")["engines"])

    def _left(self) -> dict[str, float]:
        """What a gateway could leave behind: descriptors and tasks."""
        return {"descriptors": processes.descriptors(self.pid), "tasks": self.metrics()["gateway_tasks"]}

    async def _calm(self, name: str) -> None:
        """One call per worker, so that what is kept for good is there, and nothing in flight after."""
        for number, _ in enumerate(self.victims):
            await self.storm.one(Ask(f"{name}-{number}", tokens=2))
            self.storm.open_programs.add(f"{name}-{number}")
        await self.storm.end_all()
        await asyncio.sleep(0)

    def _judge_clients(self) -> None:
        storm, ends = self.storm, self.storm.endings
        seen = f"{dict(self._suffered)}, {self._killed} requests in flight when their worker was killed"
        planned = Counter(fault.kind for fault in self.plan.faults())
        self.verdict.check("the faults happened", self._suffered == planned and self._killed > 0, seen)
        self.verdict.check("whole replies came through the storm", ends["whole"] > 0, dict(ends))
        bad = sum(ends[name] for name in ("silent", "cut", "unreachable"))
        self.verdict.check(
            "no reply was cut short in silence, or its connection broken", not bad, storm.odd[:3] or 0
        )
        self.verdict.check("connections were kept for further calls", storm.reused > 0, storm.reused)
        refused = set(storm.statuses)
        self.verdict.check("refusals are of lost engines only", refused <= ALLOWED, dict(storm.statuses))

    async def _empty(self) -> None:
        """Every program was ended: nothing is in any book, and nothing is kept for it."""
        say("all programs were ended")
        seen: list[object] = []

        def empty() -> bool:
            total, books, numbers = self._page("/programs?limit=0")["total"], self.books(), self.metrics()
            seen[:] = [f"{total} rows, {numbers['gateway_calls_open']:g} open calls; {books}"]
            return not (
                total
                or books.calls
                or books.table_calls
                or books.metric_calls
                or numbers["gateway_calls_open"]
            )

        held = await until(empty, SETTLE_S)
        self.verdict.check("the table is empty and nothing in flight after all programs ended", held, *seen)

        def small() -> bool:
            now = self._left()
            seen[:] = [f"before {self._before}, now {now}"]
            return all(now[name] <= self._before[name] for name in now)

        held = await until(small, SETTLE_S, 0.3)
        self.verdict.check("no descriptor and no task more than before", held, *seen)

    async def _sigterm(self) -> None:
        """Streams are open when the gateway is asked to end: it does, soon, and no client is misled."""
        say("SIGTERM")
        storm = self.storm
        kept: list[Wire] = []
        for number in range(4):
            await storm.one(Ask(f"kept-{number}", tokens=2, stream=False), wires := list[Wire]())
            kept += wires
        before = storm.endings.copy()
        for victim in self.victims:
            await victim.hold(True)
        asks = [Ask(f"last-{number}", tokens=64) for number in range(8)]
        tasks = [asyncio.create_task(storm.one(ask)) for ask in asks]
        await until(lambda: self.books().calls == len(asks), SETTLE_S)
        begin = time.monotonic()
        stopping = asyncio.create_task(asyncio.to_thread(self.gateway.stop))
        late = await self._too_late(kept)
        if self.plan.linger:
            await stopping
        await asyncio.sleep(0.2)
        for victim in self.victims:
            await victim.hold(False)
        await stopping
        seconds = time.monotonic() - begin
        await asyncio.gather(*tasks)
        taken = [reply for reply in late if (reply.ending, reply.status) not in TURNED_AWAY]
        self.verdict.check(
            "after SIGTERM no call gets in, on kept connections either", bool(kept) and not taken, late
        )
        self.verdict.check("SIGTERM ends it in time", seconds <= DRAIN_S, f"{seconds:.1f} s")
        ends = storm.endings - before
        good = not ends["silent"] if self.plan.linger else ends["whole"] == len(asks)
        name = "no open stream ends in silence" if self.plan.linger else "open streams still end whole"
        self.verdict.check(name, good, dict(ends))
        idle = await until(lambda: not any(victim.in_flight().calls for victim in self.victims), SETTLE_S)
        self.verdict.check("engines have nothing in flight then", idle, [v.in_flight() for v in self.victims])
        left = list(processes.group(self.pid))
        self.verdict.check("no process and no port left", not left and not processes.taken(storm.port), left)
        said = "".join(file.read_text(errors="replace") for file in self._folder.glob("*.log"))
        self.verdict.check(
            "no traceback in the gateway's output", "Traceback" not in said, said.strip()[-300:]
        )
        self._judge_log()

    async def _too_late(self, kept: Sequence[Wire]) -> list[Reply]:
        """What calls get that come while the gateway ends, on connections that were kept and on a new one."""
        storm = self.storm
        await until(lambda: not processes.taken(storm.port), SETTLE_S, 0.02)
        wires: list[list[Wire] | None] = [*([wire] for wire in kept), None]
        calls = (
            ask_for(storm.port, Ask(f"late-{number}", tokens=1, stream=False), storm.model, wire)
            for number, wire in enumerate(wires)
        )
        return await asyncio.gather(*calls)

    def _judge_log(self) -> None:
        runs = read_events(self.log)
        run, again = runs[-1], len({call.seq for call in runs[-1].calls})
        whole = (
            len(runs) == 1 and not run.open and not run.dropped and not run.torn and again == len(run.calls)
        )
        seen = f"{len(run.calls)} calls left, {len(run.open)} did not, {run.dropped} lines dropped"
        names = sorted(call.name for call in run.calls if call.name.startswith("late-"))
        self.verdict.check("in the event log no call arrived after SIGTERM", not names, names)
        self.verdict.check("in the event log every call that arrived left once", whole, seen)


def say(what: str) -> None:
    """For whoever watches."""
    print(f"{time.strftime('%H:%M:%S')} {what}", file=sys.stderr, flush=True)


async def trial(plan: Plan, victims: Sequence[Victim], folder: Path, model: str = "fake") -> Verdict:
    """Run a plan; the gateway is gone when it returns, whatever happens."""
    one = Trial(plan, victims, folder, model)
    try:
        one.start()
        return await one.run()
    finally:
        one.gateway.stop()


def on_fakes(plan: Plan, folder: Path) -> Verdict:
    """With fake engines; all processes are gone when it returns."""
    with ExitStack() as stack:
        victims = [stack.enter_context(FakeVictim()) for _ in range(plan.workers)]
        verdict = asyncio.run(trial(plan, victims, folder))
        ports = [victim.port for victim in victims]
    taken = [port for port in ports if processes.taken(port)]
    verdict.check("no port of a worker is left", not taken, taken)
    return verdict


def on_vllm(plan: Plan, folder: Path) -> Verdict:
    """With real vLLM servers."""
    with ExitStack() as stack:
        victims = vllm_victims(stack, plan.workers, folder)
        return asyncio.run(trial(plan, victims, folder, victims[0].model))


def main() -> int:
    """Run it and print the checks."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--agents", type=int, default=24)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--system", default="autellix")
    parser.add_argument("--engine", choices=("fake", "vllm"), default="fake")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # whatever is stopped is told to go on, and ended
    every_s = 5.0 if given.engine == "vllm" else Plan.every_s  # a real one takes half a minute to start
    plan = Plan(given.seed, given.seconds, given.agents, given.workers, every_s, given.system)
    with tempfile.TemporaryDirectory() as folder:
        verdict = (on_vllm if given.engine == "vllm" else on_fakes)(plan, Path(folder))
    print("\n".join(verdict.lines()))
    return 0 if verdict.ok else 1


if __name__ == "__main__":
    sys.exit(main())

"""Small programs served through the real driver: for policies that need a program's graph or its prompts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from bench.drivers.virtual import drive
from bench.records import MemorySink
from systems.catalog import build_router, build_scheduler, build_table, load_system
from systems.engines.reference import ReferenceEngine
from systems.protocols import LatencyModel
from tests.latency_models import ConstantLatency
from vocabulary import Call, EngineConfig, EngineView, Step
from workloads.base import ProgramSpec
from workloads.dryrun import dry_run
from workloads.keys import mix
from workloads.session import Program, Session

Start = Callable[[Session], Program]


@dataclass
class Served:
    """What happened: the log, the steps of each engine, and where each call went."""

    log: MemorySink
    steps: list[list[Step]]
    routes: list[tuple[float, int, int]]

    def level(self, program: int, thread: str, index: int) -> int:
        """The queue a call was in when it left."""
        who = (program, thread, index)
        return next(r.level for r in self.log.calls if (r.call.program, r.call.thread, r.call.index) == who)


class Recording:
    """A router that notes (time, call, engine)."""

    def __init__(self, router: object) -> None:
        self.router: object = router
        self.name = "recording"
        self.reads_prompt = getattr(router, "reads_prompt", False)
        self.routes: list[tuple[float, int, int]] = []

    def route(self, call: Call, engines: Sequence[EngineView], now: float) -> int:
        chosen: int = self.router.route(call, engines, now)  # type: ignore[attr-defined]
        self.routes.append((now, call.seq, chosen))
        return chosen


def serve(
    starts: Sequence[Start],
    scheduler: str = "fcfs",
    *,
    router: str = "least-used",
    knobs: Mapping[str, object] = {},
    times: Sequence[float] | None = None,
    config: EngineConfig | None = None,
    engines: int = 1,
    engine: Callable[..., object] = ReferenceEngine,
    latency: LatencyModel | None = None,
) -> Served:
    """Run the programs, one a second unless ``times`` says otherwise, with steps of a second."""
    config = config or EngineConfig(kv_blocks=400, max_num_seqs=2, record_steps=True)
    spec = load_system("vllm-opt", scheduler=scheduler, router=router, knobs=knobs)
    table, log, recording = build_table(spec), MemorySink(), Recording(build_router(spec))
    made = [
        engine(i, config, build_scheduler(spec, table), latency or ConstantLatency()) for i in range(engines)
    ]
    specs = [ProgramSpec(i, "test", mix(7, i), start) for i, start in enumerate(starts)]
    drive(
        specs,
        times=[float(i) for i in range(len(specs))] if times is None else times,
        engines=made,  # type: ignore[arg-type]
        router=recording,
        table=table,
        sink=log,
        remaining=(lambda one: float(dry_run(one).total_output)) if spec.clairvoyant else None,
    )
    steps = [list(one.steps) for one in made]  # type: ignore[attr-defined]
    return Served(log, steps, recording.routes)


def chain(*calls: tuple[int, int]) -> Start:
    """A program of one thread: (new tokens, output) per call."""

    async def start(s: Session) -> None:
        for new, output in calls:
            await s.call(new, output=output)

    return start


def forked(first: tuple[int, int], *branches: Sequence[tuple[int, int]], last: tuple[int, int]) -> Start:
    """A call, branches side by side, and a call when all are joined."""

    async def branch(s: Session, calls: Sequence[tuple[int, int]]) -> None:
        for new, output in calls:
            await s.call(new, output=output)

    async def start(s: Session) -> None:
        await s.call(first[0], output=first[1])
        await s.join(*(branch(s.fork(), calls) for calls in branches))
        await s.call(last[0], output=last[1])

    return start

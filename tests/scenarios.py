"""Scripted programs, a tiny host that plays them on engines, and strategies that make nasty ones.

The host keeps the order of docs/engine.md: at equal times results of finished
calls come first, then waking programs, then leaving clients, then arrivals;
everything that happens at t is delivered before a step starts at t.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import astuple, dataclass, field
from functools import partial
from heapq import heappop, heappush
from itertools import count
from typing import Any

from systems.process_table import ProcessTable
from systems.protocols import Engine, LatencyModel, Router, Scheduler, TransferModel
from tests.latency_models import ConstantLatency
from vocabulary import (
    INF,
    Body,
    Call,
    Decision,
    EngineConfig,
    Finished,
    Segment,
    Step,
    on_grid,
)
from workloads.keys import key_of

# Scripts


@dataclass(frozen=True)
class Ask:
    """Append ``new`` fresh tokens and call for ``output`` tokens, ``gap`` seconds after the last thing.

    ``text`` names the fresh text: equal texts are equal tokens, in every program
    (None: text nobody else has). ``keep`` cuts the context before to so many tokens.
    """

    new: int
    output: int
    gap: float = 0.0
    text: str | None = None
    keep: int | None = None


@dataclass(frozen=True)
class Fork:
    """Run the chains concurrently from this context and wait for all."""

    chains: tuple[tuple[Ask | Fork, ...], ...]


Chain = tuple[Ask | Fork, ...]


@dataclass(frozen=True)
class Script:
    """One program. ``leaves``: seconds after its arrival at which the client goes away."""

    chain: Chain
    arrival: float = 0.0
    leaves: float | None = None


@dataclass(frozen=True)
class Scenario:
    """Programs and the engine they meet; ``engines`` of them.

    ``transfer``: what moving KV to and from host memory costs; without one, engines are made without.
    """

    scripts: tuple[Script, ...]
    config: EngineConfig
    latency: LatencyModel = field(default_factory=ConstantLatency)
    engines: int = 1
    transfer: TransferModel | None = None


@dataclass
class Outcome:
    """What happened, in values that compare with ==."""

    rows: list[tuple[Any, ...]]
    decisions: list[Decision]
    steps: list[list[Step]]
    stats: list[dict[str, float]]
    finished: list[Finished]
    program_end: dict[int, float]

    def same(self, other: Outcome) -> bool:
        """Equal to the last bit."""
        return (self.rows, self.decisions, self.steps, self.stats, self.program_end) == (
            other.rows, other.decisions, other.steps, other.stats, other.program_end
        )  # fmt: skip


# The host

_RESULT, _WAKE, _LEAVE, _ARRIVE = range(4)


class RoundRobin:
    name = "round-robin"

    def __init__(self) -> None:
        self._next = count()

    def route(self, call: Call, engines: Sequence[Any], now: float) -> int:
        return engines[next(self._next) % len(engines)].id


Then = Callable[[float], None]


@dataclass(eq=False)
class _Program:
    script: Script
    number: int
    open: dict[int, Call] = field(default_factory=dict)
    gone: bool = False


@dataclass(eq=False)
class _Thread:
    program: _Program
    path: str = ""
    context: list[Segment] = field(default_factory=list)

    def fork(self, number: int) -> _Thread:
        path = f"{self.path}.{number}" if self.path else str(number)
        return _Thread(self.program, path, list(self.context))


class Host:
    """Plays scripts on engines; ``after`` is called with each engine that was advanced."""

    def __init__(
        self,
        engines: Sequence[Engine],
        router: Router | None = None,
        table: ProcessTable | None = None,
        stride: str = "far",
        after: Callable[[Engine], None] = lambda engine: None,
    ) -> None:
        self.engines = {engine.id: engine for engine in engines}
        self.router = router or RoundRobin()
        self.table = ProcessTable() if table is None else table  # an empty table is falsy
        self.stride = stride
        self.after = after
        self.rows: list[Finished] = []
        self.program_end: dict[int, float] = {}
        self._events: list[tuple[float, int, int, Then]] = []
        self._tie = count()
        self._seq = count()
        self._where: dict[int, Engine] = {}
        self._then: dict[int, Then] = {}
        self._programs: list[_Program] = []

    def run(self, scripts: Sequence[Script]) -> None:
        self._programs = [_Program(script, number) for number, script in enumerate(scripts)]
        for program in self._programs:
            self._at(program.script.arrival, _ARRIVE, partial(self._arrive, program))
        while True:
            engine = min(self.engines.values(), key=lambda e: (e.clock(), e.id))
            event = self._events[0][0] if self._events else INF
            if engine.clock() < event:
                self._advance(engine, event)
            elif self._events:
                now, _, _, _, act = heappop(self._events)
                act(now)
            else:
                return

    def _advance(self, engine: Engine, until: float) -> None:
        once = math.nextafter(engine.clock(), INF)
        others = (e.horizon() for e in self.engines.values() if e is not engine)
        until = once if self.stride == "single" else max(once, min([until, *others]))
        if engine.advance(until):
            self._at(engine.results_at(), _RESULT, partial(self._collect, engine), engine.id)
        else:
            self.after(engine)

    def _at(self, time: float, kind: int, act: Then, engine: int = 0) -> None:
        """Schedule ``act``; equal times and kinds go by engine, then by who asked first."""
        heappush(self._events, (time, kind, engine, next(self._tie), act))

    def _arrive(self, program: _Program, now: float) -> None:
        if program.script.leaves is not None:
            self._at(on_grid(now + program.script.leaves), _LEAVE, partial(self._leave, program))
        self._walk(_Thread(program), program.script.chain, 0, partial(self._over, program), now)

    def _walk(self, thread: _Thread, chain: Chain, index: int, done: Then, now: float) -> None:
        """Go on with ``chain[index:]`` of one thread."""
        if index == len(chain):
            done(now)
            return
        item = chain[index]
        then = partial(self._walk, thread, chain, index + 1, done)
        if isinstance(item, Fork):
            self._fork(thread, item, then, now)
        elif item.gap:
            self._at(on_grid(now + item.gap), _WAKE, partial(self._ask, thread, index, item, then))
        else:
            self._ask(thread, index, item, then, now)

    def _fork(self, thread: _Thread, fork: Fork, joined: Then, now: float) -> None:
        left = len(fork.chains)

        def done(at: float) -> None:
            nonlocal left
            left -= 1
            if left == 0:
                joined(at)

        for number, chain in enumerate(fork.chains):
            self._walk(thread.fork(number), chain, 0, done, now)

    def _ask(self, thread: _Thread, index: int, ask: Ask, then: Then, now: float) -> None:
        program, context = thread.program, thread.context
        if program.gone:
            return
        if ask.keep is not None:
            context[:] = _cut(context, ask.keep)
        where = (program.number, thread.path, index)
        context.append((key_of(ask.text) if ask.text else key_of("new", *where), ask.new))
        body = Body(tuple(context), key_of("reply", *where), ask.output)
        tokens = sum(length for _, length in context)
        call = Call(next(self._seq), program.number, thread.path, index, tokens)
        self._submit(program, call, body, now)

        def replied(at: float) -> None:
            context.append((body.output_id, ask.output))
            then(at)

        self._then[call.seq] = replied

    def _submit(self, program: _Program, call: Call, body: Body, now: float) -> None:
        views = [engine.view() for engine in self.engines.values()]
        engine = self.engines[self.router.route(call, views, now)]
        program.open[call.seq] = call
        self._where[call.seq] = engine
        engine.submit(call, body, self.table.snapshot(program.number), now)

    def _collect(self, engine: Engine, now: float) -> None:
        rows = engine.collect()
        self.after(engine)
        for row in rows:
            self._result(row, now)

    def _result(self, row: Finished, now: float) -> None:
        self._closed(row, now)
        if not self._programs[row.call.program].gone:
            self._then[row.call.seq](now)

    def _closed(self, row: Finished, now: float) -> None:
        self.rows.append(row)
        program = self._programs[row.call.program]
        del program.open[row.call.seq]
        if program.gone and not program.open:
            self._over(program, now)

    def _leave(self, program: _Program, now: float) -> None:
        if program.number in self.program_end:
            return
        program.gone = True
        if not program.open:
            self._over(program, now)
        for call in list(program.open.values()):
            self._abort(program, call, now)

    def _abort(self, program: _Program, call: Call, now: float) -> None:
        """Abort at the engine's next boundary; a result that comes no later wins."""
        if call.seq not in program.open:
            return
        boundary = self._where[call.seq].clock()
        if now < boundary < INF:
            self._at(boundary, _LEAVE, partial(self._abort, program, call))
            return
        row = self._where[call.seq].abort(call, now)
        if row is not None:
            self._closed(row, now)

    def _over(self, program: _Program, now: float) -> None:
        self.program_end[program.number] = now
        for engine in self.engines.values():
            engine.end_program(program.number, now)


def _cut(context: Sequence[Segment], keep: int) -> Iterator[Segment]:
    for segment, length in context:
        if keep > 0:
            yield segment, min(length, keep)
        keep -= length


EngineMaker = Callable[..., Engine]
"""(number, config, scheduler, latency model), and a transfer model if the scenario has one."""


def play(
    make: EngineMaker,
    scenario: Scenario,
    schedulers: Callable[[ProcessTable], Scheduler],
    *,
    rule: str = "sum",
    router: Router | None = None,
    stride: str = "far",
    after: Callable[[Engine], None] = lambda engine: None,
) -> Outcome:
    """Run ``scenario`` on engines made by ``make``, with a scheduler each over one process table.

    ``stride``: "far" lets an engine run as far as nothing can interfere,
    "single" asks for every step by itself.
    """
    table = ProcessTable(rule)
    models = (scenario.latency,) if scenario.transfer is None else (scenario.latency, scenario.transfer)
    engines = [
        make(number, scenario.config, schedulers(table), *models) for number in range(scenario.engines)
    ]
    host = Host(engines, router, table, stride, after)
    host.run(scenario.scripts)
    return Outcome(
        [astuple(row) for row in host.rows],
        [decision for engine in engines for decision in engine.decisions],
        [list(engine.steps) for engine in engines],
        [engine.stats() for engine in engines],
        host.rows,
        host.program_end,
    )

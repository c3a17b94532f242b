"""The gateway: one front door for all engines of a deployment, and its process table (docs/gateway.md)."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from typing import Any

from systems.catalog import CatalogError, build_gate, build_retention, build_router, build_table, load_system
from systems.gateway.books import Books
from systems.gateway.carrier import RETRY_S, Carrier
from systems.gateway.door import Door
from systems.gateway.errors import Refused
from systems.gateway.keeping import Keeping, waiting_tokens
from systems.gateway.observe import Observer
from systems.gateway.options import GatewayOptions
from systems.gateway.outbox import Drops, Outbox
from systems.gateway.outlet import Hearts
from systems.gateway.polls import Polls
from systems.gateway.programs import Program, Programs
from systems.gateway.rows import Rows
from systems.gateway.wires import Wires
from systems.gateway.workers import Worker, Workers
from systems.protocols import Gate
from systems.slots import DEFAULTS
from vocabulary import EngineView, GateEvent, KeepEvent

_LOG = logging.getLogger("gateway")
TICK_S = 0.5
"""How often leases, and messages that engines did not take, are looked at."""


class Gateway:
    """``programs``: a row each; ``workers``: the engines; ``observers``: told of everything, in order.

    ``origin_wall``: Unix time at second 0 of ``now``. Raises CatalogError for a system that is none.
    """

    def __init__(
        self,
        options: GatewayOptions,
        observers: Sequence[Observer] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.options = options
        self.observers: list[Observer] = list(observers)
        self.system = load_system(
            options.system,
            options.scheduler,
            options.router,
            options.knobs,
            gate=options.gate,
            retention=options.retention,
        )
        if self.system.front != DEFAULTS["front"]:
            raise CatalogError(f"system {self.system.name}: {self.system.front} serves it, not this gateway")
        if options.observe and (self.system.gate, self.system.retention) != (
            DEFAULTS["gate"],
            DEFAULTS["retention"],
        ):
            raise CatalogError(f"system {self.system.name} holds or keeps programs: not while observing only")
        self._clock = clock
        self.origin, self.origin_wall = clock(), time.time()
        self.workers = Workers(options.targets, self.now, self._engine)
        self.programs = Programs(build_table(self.system), self._started, self._ended)
        self._outbox = Outbox(self.workers, self.now)
        gate, router = build_gate(self.system), build_router(self.system)
        self.door = Door(gate, router, self.workers, self.now, self._gate, Drops(self.programs, self._outbox))
        self.keeping = self._keeping()
        self.rows = Rows(self.workers, self.now)
        self.wires = Wires(self.workers)
        self.hearts = Hearts(options.heartbeat_s, self.now)
        self.books = Books(
            self.programs, self.door, self.rows, self.observers, self.now,
            unit=self.system.unit,
            reads_prompt=self._reads_prompt(gate),
            keeping=self.keeping, hears_tools=options.tools == "told",
        )  # fmt: skip
        self.carrier = Carrier(
            options, self.workers, self.door, self.books, self.rows, self.wires, self.hearts, self.now,
            self.origin, names_tools=self.keeping is not None and options.tools == "reply",
        )  # fmt: skip
        self._leaving: Program | None = None
        self._polls = Polls(options, self.workers, self.now)
        self._ticking: asyncio.Task[None] | None = None

    def now(self) -> float:
        """Seconds since it began."""
        return self._clock() - self.origin

    @property
    def in_flight(self) -> int:
        """Calls that arrived and are not charged yet: held, at engines, or cut off and awaited there."""
        return len(self.books.open)

    @property
    def unsaid(self) -> int:
        """Ends of programs that engines have not taken yet."""
        return len(self._outbox)

    async def start(self) -> None:
        """Begin to watch the engines."""
        await self._polls.start()
        self.hearts.start()
        self._ticking = asyncio.create_task(self._tick())

    async def stop(self) -> None:
        """Let go of everything: calls that are not over are charged as they stand, their clients told."""
        text = "the gateway stops, and the call was not over in time"
        tasks = self.books.cut_off(Refused(503, text, outcome="timeout", retry_s=RETRY_S))
        if tasks:
            await asyncio.wait(tasks, timeout=1.0)
        if self._ticking is not None:
            self._ticking.cancel()
        self.hearts.stop()
        self.door.close()
        await self._polls.stop()
        await self.wires.close()
        self.rows.close()
        for program in self.programs:
            self.programs.end(program, "ended")
        self._outbox.close()
        for observer in self.observers:
            close: Any = getattr(observer, "close", None)
            if close is not None:
                close()

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            self.programs.expire(self.options.lease_s, self.now())
            self._outbox.flush()

    # -- what happens, told to those who watch -----------------------------------------

    def _started(self, program: Program) -> None:
        program.engines.update(self._outbox.recall(program.name))
        for observer in self.observers:
            observer.started(program.number, program.name, program.started)

    def _ended(self, program: Program, why: str) -> None:
        again = self.programs.named(program.name)
        if again is not None:  # an engine knows but the name: it hears of the end when that is over, too
            again.engines |= program.engines
        else:
            for engine in program.engines:
                self._outbox.end(program.name, engine)
        for observer in self.observers:
            observer.ended(program.number, program.name, why, self.now())
        self._leaving = program
        try:
            if self.keeping is not None:
                self.keeping.end(program)
            self.door.end(program.number)
        except Exception:  # a policy's: the row is gone all the same
            _LOG.exception("program %d is over", program.number)
        self._leaving = None

    def _engine(self, worker: Worker, what: str, reason: str) -> None:
        for observer in self.observers:
            observer.engine(worker.id, what, reason, self.now())
        self.door.turned()

    def _gate(self, event: GateEvent) -> None:
        for observer in self.observers:
            observer.gate(event, self._name(event.program))

    def _kept(self, event: KeepEvent) -> None:
        for observer in self.observers:
            observer.kept(event, self._name(event.program))

    def _name(self, number: int) -> str:
        program = self.programs.numbered(number) or self._leaving
        return program.name if program is not None and program.number == number else ""

    def _reads_prompt(self, gate: Gate) -> bool:
        keeps = self.keeping is not None and self.keeping.reads_prompt
        return self.system.reads_prompt or keeps or bool(getattr(gate, "reads_prompt", False))

    def _keeping(self) -> Keeping | None:
        """None where nothing is kept: that costs nothing. Raises CatalogError for what cannot act here."""
        name = self.system.retention
        if name == DEFAULTS["retention"]:
            return None
        policy = build_retention(self.system)
        if getattr(policy, "clairvoyant", False):
            raise CatalogError(f"retention {name} needs to know how long tools will take: nobody does here")
        if not any(worker.target.control for worker in self.workers):
            raise CatalogError(
                f"retention {name} acts over the engines' control sockets (--control), and none is named; "
                f"without it: --knob retention={DEFAULTS['retention']}"
            )

        def waiting(view: EngineView) -> int:
            return waiting_tokens(self.books.open, view, len(self.workers))

        return Keeping(policy, self.workers, self._outbox, self.now, waiting, self._kept)

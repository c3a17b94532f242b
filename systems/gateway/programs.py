"""The programs a gateway knows: who is in which state, and the process table that says what each received."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from itertools import count
from typing import Literal

from systems.gateway.turns import Turns
from systems.process_table import ProcessTable, Row
from vocabulary import Snapshot, Usage

State = Literal["idle", "reasoning", "held"]
"""reasoning: calls of it are at engines; held: calls wait here and none is at an engine; idle: neither."""
_NEW = Snapshot()


class Program:
    """One program's row. Times in seconds since the gateway began; ``name`` is "" for a program of one call.

    ``calls`` are at engines and not yet charged, ``held`` wait here; ``engine``: where its last call went,
    -1 before the first one; ``engines``: all it went to, and those that know its name from an earlier one.
    """

    __slots__ = (
        "calls", "engine", "engines", "held", "last", "name", "number", "over", "row", "started",
        "turns",
    )  # fmt: skip

    def __init__(self, number: int, name: str, row: Row, now: float) -> None:
        self.number = number
        self.name = name
        self.row = row
        self.started = self.last = now
        self.calls = 0
        self.held = 0
        self.engine = -1
        self.engines: set[int] = set()
        self.over = ""
        self.turns = Turns()

    @property
    def state(self) -> State:
        """What it does now."""
        return "reasoning" if self.calls else "held" if self.held else "idle"

    @property
    def service(self) -> float:
        """In the scheduler's unit, over all engines."""
        return self.row.service

    @property
    def exec_s(self) -> float:
        """Seconds its calls were executed."""
        return self.row.exec_s

    @property
    def wait(self) -> float:
        """Seconds its calls waited, at engines and here."""
        return self.row.wait

    @property
    def busy(self) -> bool:
        """Whether a call of it is open."""
        return self.calls > 0 or self.held > 0


class Programs:
    """All rows, those used least recently first; it owns ``table``.

    ``started`` and ``ended`` are called with a program whose row comes, or is gone: why is ended,
    one-shot or lease.
    """

    def __init__(
        self,
        table: ProcessTable,
        started: Callable[[Program], None] = lambda _: None,
        ended: Callable[[Program, str], None] = lambda _, __: None,
    ) -> None:
        self.table = table
        self._started = started
        self._ended = ended
        self._rows: OrderedDict[int, Program] = OrderedDict()
        self._names: dict[str, Program] = {}
        self._numbers = count()

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[Program]:
        return iter(list(self._rows.values()))

    def named(self, name: str) -> Program | None:
        """The program that goes by this name now."""
        return self._names.get(name)

    def numbered(self, number: int) -> Program | None:
        """The row with this number."""
        return self._rows.get(number)

    def counts(self) -> dict[State, int]:
        """Programs by state."""
        found: dict[State, int] = {"idle": 0, "reasoning": 0, "held": 0}
        for program in self._rows.values():
            found[program.state] += 1
        return found

    def start(self, name: str, now: float) -> Program:
        """The program called ``name``, begun if there is none; "" begins a program of one call."""
        program = self._names.get(name) if name else None
        if program is None:
            number = next(self._numbers)
            program = Program(number, name, self.table.start(number, now), now)
            self._rows[number] = program
            if name:
                self._names[name] = program
            self._started(program)
        else:
            self._rows.move_to_end(program.number)
        program.last = now
        return program

    def hold(self, program: Program, now: float) -> None:
        """A call of it is here."""
        program.held += 1
        self.table.arrive(program.number, _NEW, now)

    def give_up(self, program: Program, waited: float, now: float) -> None:
        """A call of it leaves that was at no engine: all it had was wait."""
        program.held -= 1
        self._charge(program, program.service, Usage(0.0, 0.0, waited), now)

    def send(self, program: Program, engine: int) -> Snapshot:
        """A call of it goes to an engine, with this snapshot."""
        program.held -= 1
        program.calls += 1
        program.engine = engine
        program.engines.add(engine)
        return self.table.snapshot(program.number)

    def move(self, program: Program, engine: int) -> None:
        """A call of it goes to another engine: the first one was lost."""
        program.engine = engine
        program.engines.add(engine)

    def charge(self, program: Program, snap: Snapshot, usage: Usage, now: float) -> None:
        """A call of it left its engine after receiving ``usage``."""
        program.calls -= 1
        self._charge(program, snap.service, usage, now)

    def end(self, program: Program, why: str) -> bool:
        """The program is over; its row goes with its last call. False if it was over before."""
        if program.over:
            return False
        program.over = why
        if self._names.get(program.name) is program:
            del self._names[program.name]
        self.table.end(program.number)
        self._go(program)
        return True

    def expire(self, lease_s: float, now: float) -> None:
        """End those that nobody has called for so long."""
        for program in list(self._rows.values()):
            if program.last + lease_s > now:
                return
            if program.busy:
                program.last = now
                self._rows.move_to_end(program.number)
            else:
                self.end(program, "lease")

    def _charge(self, program: Program, service: float, usage: Usage, now: float) -> None:
        self.table.charge(program.number, service, usage, now)
        program.last = now
        self._rows.move_to_end(program.number)
        if not program.over and not program.name:
            self.end(program, "one-shot")
        else:
            self._go(program)

    def _go(self, program: Program) -> None:
        if program.over and not program.busy:
            del self._rows[program.number]
            self._ended(program, program.over)

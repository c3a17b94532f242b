"""The virtual-time driver of systems that hold programs, keep their KV, or prepare sandboxes for their tools.

``VirtualDriver`` with three more policies on the same clock: a gate at the door, retention while programs
are away, and the environments of their tools. Systems without them do not pay for them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from bench.drivers.door import Door, Stuck
from bench.drivers.effects import WAKE, ProgramError
from bench.drivers.keeping import Keeper, totals
from bench.drivers.tasks import Run, Task
from bench.drivers.virtual import Progress, VirtualDriver
from bench.records import RunEnd, Sink
from systems.process_table import ProcessTable
from systems.protocols import Engine, Environment, Gate, Retention, Router
from vocabulary import Call, Finished
from workloads.base import ProgramSpec
from workloads.session import CallEffect, Effect, ThinkEffect, ToolEffect

AT_THE_DOOR = -1
"""The engine of a call that is in none."""
PERSON = "human"
"""The tool that a person is to a retention policy."""


class GovernedDriver(VirtualDriver):
    """State of one run; use ``bench.drivers.virtual.drive``."""

    def __init__(
        self, engines: Sequence[Engine], router: Router, table: ProcessTable, sink: Sink,
        shared_table: bool, remaining: Callable[[ProgramSpec], float] | None, cores: float,
        sample_s: float, progress: Progress | None,
        gate: Gate | None, retention: Retention | None, environment: Environment | None,
    ) -> None:  # fmt: skip
        super().__init__(engines, router, table, sink, shared_table, remaining, cores, sample_s, progress)
        self.plain_tools = False
        self.keeps = all(hasattr(engine, "drop") for engine in self.engines)
        self.door = None
        if gate is not None:
            self.door = Door(gate, self.engines, self._at, self._send, self._let_in, self._drop)
            self.reads_prompt = self.reads_prompt or self.door.reads_prompt
        self.keeper = None if retention is None else Keeper(retention, self.engines, self._waiting)
        if self.keeper is not None:
            self.reads_prompt = self.reads_prompt or self.keeper.reads_prompt
        self.sandboxes = None if environment is None else _sandboxes(environment, self._at)
        self.line: dict[int, None] = {}
        """Programs that the gate holds, in the order in which it began to, where there are sandboxes."""

    def loop(self) -> RunEnd:
        """Run until nothing is left. Raises ProgramError if a gate keeps somebody for ever."""
        try:
            end = super().loop()
        except Stuck as error:
            raise ProgramError(str(error)) from None
        if self.door is not None and len(self.door):
            raise ProgramError(self.door.stuck())
        said: dict[str, Any] = {}
        if self.keeper is not None or (self.door is not None and self.keeps):
            said["kept"] = totals(self.engines)
        if self.sandboxes is not None:
            self.sandboxes.close(self.now)
            said["environment"] = self.sandboxes.totals()
        return end._replace(said=said)

    # -- programs --------------------------------------------------------------------

    def arrive(self, spec: ProgramSpec) -> None:
        """A program is here, and so is whoever prepares its sandbox."""
        if self.sandboxes is not None:
            self.sandboxes.arrive(spec.index, self.now)
        super().arrive(spec)

    def call(self, task: Task, effect: CallEffect) -> None:
        """A program asks the model: the gate is asked first."""
        call = self.make(task, effect)
        task.thread = call.thread
        if self.keeper is not None:
            call.kept = self.keeper.asked(call, self.now)
        task.engine = AT_THE_DOOR
        if self.door is None:
            self._send(task, effect, None)
        elif not self.door.enter(task, effect, call, self.now):
            if self.sandboxes is not None:
                self.line[call.program] = None
                self._nearer()
            return
        if self.sandboxes is not None:
            self.sandboxes.resumed(call.program, self.now)

    def left(self, row: Finished) -> None:
        """A call left its engine: gate and keeper hear of it before its program goes on."""
        if self.keeper is not None:
            self.keeper.ended(row)
        if self.door is not None:
            self.door.left(row, self.now)
        super().left(row)

    def settle(self, run: Run) -> None:
        """The program is over once nothing of it is left; then nothing of it is held, kept or prepared."""
        program = run.spec.index
        super().settle(run)
        if program in self.runs:
            return
        if self.keeper is not None:
            self.keeper.over(program, self.now)
        if self.sandboxes is not None:
            self.sandboxes.end(program, self.now)
            if program in self.line:
                del self.line[program]
                self._nearer()
        if self.door is not None:
            self.door.end(program, self.now)

    def begin(self, task: Task, effect: Effect) -> tuple[bool, Any]:
        """Begin an effect; what makes a thread go away is told to the keeper, tools need a sandbox."""
        if type(effect) is ToolEffect:
            self._away(task, effect.name, effect.work_s)
            if self.sandboxes is not None and not self._ready(task, effect):
                return False, None
        elif type(effect) is ThinkEffect:
            self._away(task, PERSON, effect.seconds)
        return super().begin(task, effect)

    # -- what the three are told -----------------------------------------------------

    def _away(self, task: Task, tool: str, seconds: float) -> None:
        if self.keeper is not None:
            self.keeper.away(task.run.spec.index, task.thread, tool, seconds, self.now)

    def _ready(self, task: Task, effect: ToolEffect) -> bool:
        """Whether the tool may begin now; else it begins when its sandbox is there."""
        assert self.sandboxes is not None
        ticket = task.ticket

        def go() -> None:
            if task.ticket == ticket and task.coroutine is not None:
                super(GovernedDriver, self).begin(task, effect)

        ready: bool = self.sandboxes.use(task.run.spec.index, self.now, go)
        return ready

    def _send(self, task: Task, effect: CallEffect, engine: int | None) -> None:
        """A call goes on: to ``engine``, None: where the router says."""
        call = task.call
        assert call is not None
        if engine is None:
            views = [e.view() for e in self.engines]
            engine = self.router.route(call, views, self.now) if len(views) > 1 else 0
        task.engine = engine
        if self.keeper is not None:
            self.keeper.sent(call, engine, self.now)
        self.submit(task, effect)

    def _let_in(self, program: int) -> None:
        if self.sandboxes is not None:
            self.line.pop(program, None)
            self.sandboxes.resumed(program, self.now)
            self._nearer()

    def _nearer(self) -> None:
        """Programs at the door may have moved up in line."""
        assert self.sandboxes is not None
        for ahead, program in enumerate(self.line):
            self.sandboxes.held(program, ahead, self.now)

    def _drop(self, engine: int, program: int) -> None:
        found: Any = self.engines[engine]
        found.drop(program, self.now)
        if self.keeper is not None:
            self.keeper.dropped(program, engine)

    def _waiting(self) -> int:
        return 0 if self.door is None else self.door.tokens

    def _at(self, time: float, act: Callable[[], None]) -> None:
        self.at(time, WAKE, act)

    def _abort(self, call: Call, engine: Engine) -> None:
        """The call's client left: at the door there is no boundary to wait for."""
        row = None if self.door is None else self.door.give_up(call, self.now)
        if row is None:
            super()._abort(call, engine)
            return

        if self.keeper is not None:
            self.keeper.gave_up(call)

        def leave() -> None:
            super(GovernedDriver, self).left(row)
            if self.door is not None:
                self.door.tick(self.now)

        self.at(self.now, WAKE, leave)

    def _sample(self) -> None:
        super()._sample()
        rows = [*self._told()]
        if rows:
            self.sink.decisions(rows)

    def _told(self) -> list[Any]:
        """What the policies did since the last time, as rows of the log, in the order of time."""
        rows = [] if self.door is None else [*self.door.decisions()]
        rows += [] if self.keeper is None else self.keeper.decisions()
        if self.sandboxes is not None:
            rows += self.sandboxes.events
            self.sandboxes.events.clear()
        return sorted(rows, key=lambda row: row.time)


def _sandboxes(policy: Environment, at: Callable[[float, Callable[[], None]], None]) -> Any:
    from bench.drivers.environments import Environments

    return Environments(policy, at)

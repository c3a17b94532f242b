"""A cell of a sweep as a worker sees it: planned, looked at or run in one process, never raising."""

from __future__ import annotations

import os
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from bench.config import RunConfig
from bench.errors import BenchError, Exit, MissingError
from bench.files import DiskFull, Taken, beneath, explain
from bench.foreign import in_a_line
from bench.offline import Ledger, Offline
from bench.plan import FEW, Plan, plan
from bench.run import Interrupted, Progress, RunResult, complete, execute

EVERY = 0.25
"""Seconds between two words on how far a cell is."""

Fact = tuple[str, Offline]
"""A program set's hash, and what it is without a clock."""


@dataclass(frozen=True)
class Failure:
    """A cell that has no result: why, and the exit code ``bench run`` would have given it."""

    config: RunConfig
    exit_code: Exit
    message: str
    disk_full: bool = False


class Look(NamedTuple):
    """What is known of a cell before it runs. ``calls``: about; ``there``: its result is."""

    folder: str
    programs: int
    calls: int
    there: bool


class Task(NamedTuple):
    """What a worker is asked. ``fact``: of the programs, where another worker has found it already."""

    config: RunConfig
    run: bool = True
    force: bool = False
    fact: Fact | None = None


class Answer(NamedTuple):
    """``outcome`` None: another bench is writing the cell. ``fact``: for others with the same programs."""

    outcome: RunResult | Look | Failure | None
    fact: Fact | None = None


class Cells:
    """A worker's work (``bench.workers.Work``). Programs that cells have in common are looked at once."""

    def __init__(self) -> None:
        self._facts: dict[str, Offline] = {}
        self._ledgers: dict[tuple[str, str, int], Ledger] = {}
        self._calls: dict[tuple[object, ...], int] = {}

    def __call__(self, task: Task, say: Callable[[Any], None]) -> Answer:
        """Do the task; what goes wrong is the answer. KeyboardInterrupt: we are told to stop."""
        config = task.config
        try:
            return self._run(task, _spoken(say)) if task.run else Answer(self._look(config))
        except Taken:
            return Answer(None)
        except Interrupted:
            raise KeyboardInterrupt from None
        except BenchError as error:
            return Answer(Failure(config, error.exit_code, str(error), isinstance(error, DiskFull)))
        except MemoryError:
            return Answer(Failure(config, Exit.MISSING, "out of memory: lower --n, or use fewer --workers"))
        except Exception as error:
            if isinstance(error, PermissionError) and beneath(error, config.out):
                return Answer(Failure(config, Exit.MISSING, str(explain(error, config.out))))
            if os.environ.get("BENCH_DEBUG"):
                traceback.print_exc()
            message = f"internal error: {in_a_line(error)} (BENCH_DEBUG=1 shows where)"
            return Answer(Failure(config, Exit.INTERNAL, message))
        except SystemExit as error:
            return Answer(Failure(config, Exit.INVALID_RUN, f"a program or policy raised {in_a_line(error)}"))

    def _run(self, task: Task, progress: Progress) -> Answer:
        made = plan(task.config)
        if task.fact is not None:
            self._facts.setdefault(*task.fact)
        if task.force or not _there(made):
            made.offline = self._offline(made)  # here, once: on a sweep no core is free for it
        result = execute(made, force=task.force, progress=progress)
        return Answer(result, None if result.cached else (made.program_hash, made.offline))

    def _offline(self, made: Plan) -> Offline:
        """Programs of the same workload and seed at another rate are more or fewer of the same."""
        name = made.program_hash
        if name not in self._facts:
            keys = [spec.key for spec in made.programs.programs]
            what = (made.config.workload, repr(sorted(made.programs.parameters.items())), made.config.seed)
            ledger = self._ledgers.get(what)
            if ledger is None or ledger.keys[: len(keys)] != keys:
                ledger = self._ledgers[what] = made.ledger()
            self._facts[name] = ledger.upto(len(keys))
        return self._facts[name]

    def _look(self, config: RunConfig) -> Look:
        made = plan(config)
        specs = made.programs.programs
        name = (config.workload, repr(dict(config.parameters)), len(specs), *(s.key for s in specs[:FEW]))
        if name not in self._calls:  # the same programs at another rate have as many
            self._calls[name] = made.calls_estimate
        return Look(str(made.folder), len(specs), self._calls[name], _there(made))


def _there(made: Plan) -> bool:
    try:
        complete(made.folder)
    except MissingError:
        return False
    return True


def _spoken(say: Callable[[Any], None]) -> Progress:
    """Say which share of a cell's programs is done, now and then."""
    following = time.monotonic() + EVERY

    def progress(done: int, total: int) -> None:
        nonlocal following
        if (now := time.monotonic()) >= following:
            following = now + EVERY
            say(done / total)

    return progress

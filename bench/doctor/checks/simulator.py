"""The default engine: a few programs through it."""

from __future__ import annotations

from bench.config import RunConfig
from bench.doctor.check import BROKEN, OK, Finding, Here, Simple

PROGRAMS = 3
WORK_S = 30.0
"""It takes a second of one core, which a busy machine may not have."""


def _look(here: Here) -> Finding:  # noqa: ARG001
    from bench.plan import plan
    from bench.records import MemorySink
    from bench.run import drive_plan

    sink = MemorySink()
    drive_plan(plan(RunConfig("autellix", "react", n=PROGRAMS)), sink)
    done = [row for row in sink.programs if row.outcome == "finished"]
    if len(done) != PROGRAMS:
        return Finding(BROKEN, f"{len(done)} of {PROGRAMS} programs finished", "report this as a bug")
    return Finding(OK, f"{PROGRAMS} programs with {len(sink.calls)} calls ran")


CHECK = Simple("simulator", 1, _look, WORK_S)

"""Steps per minute, the cycle, and Little's law of a closed loop."""

import math

import numpy as np
import pandas as pd
import pytest

from bench import steps
from bench.eventlog import from_memory
from bench.records import MemorySink, ProgramRow
from tests.unit.bench.rows import memory
from vocabulary import Call, Finished


def loop(workers=8, each=40, call=3.0, tool=5.0, calls=10):
    """``workers`` programs at all times, each of ``calls`` steps of 8 s; staggered by a second."""
    sink, seq = MemorySink(), 0
    for worker in range(workers):
        now = float(worker)
        for k in range(each):
            program, began = worker * each + k, now
            for index in range(calls):
                sink.call(
                    Finished(Call(seq, program, "", index, 50), 0, now, now, now + 1, now + call, 9,
                             prefill_s=1.0, decode_s=call - 1)
                )  # fmt: skip
                seq, now = seq + 1, now + call + tool
            sink.program(ProgramRow(program, "toy", began, now, "finished", calls))
    return from_memory(sink)


def test_a_closed_loop_obeys_littles_law():
    tables = loop()
    got = steps.littles_law(tables.programs, tables.calls)
    assert got["cycle_s"] == 8.0
    assert got["product"] == pytest.approx(8.0, rel=0.01)
    assert abs(got["deviation"]) < 0.01


def test_steps_a_minute_with_an_interval_in_each_window():
    tables = loop()
    got = steps.rates(tables.programs, tables.calls)
    assert got["per_min"].value == pytest.approx(60.0, rel=0.01)
    assert got["per_min"].low <= 60.5
    assert got["per_min_early"].value == pytest.approx(got["per_min_late"].value, rel=0.02)
    assert math.isnan(got["per_min_paper"].value)
    assert got["makespan_s"].value == tables.programs.t_end.max()
    longer = loop(workers=2, each=80)
    paper = steps.rates(longer.programs, longer.calls)["per_min_paper"]
    assert paper.value == pytest.approx(15.0, rel=0.02)


def test_few_steps_give_no_interval():
    tables = loop(workers=1, each=4, calls=3)
    assert "no interval" in steps.rates(tables.programs, tables.calls)["per_min"].note


def test_a_step_ends_with_the_next_call_the_branch_or_the_program():
    sink = MemorySink()
    for seq, (thread, index, start, end) in enumerate([("", 0, 0, 2), ("0", 0, 2, 9), ("", 1, 10, 12)]):
        sink.call(Finished(Call(seq, 0, thread, index, 50), 0, start, start, end, end, 9))
    sink.program(ProgramRow(0, "toy", 0.0, 15.0, "finished", 3))
    tables = from_memory(sink)
    got = steps.steps(tables.programs, tables.calls)
    assert sorted(zip(got.start, got.end, strict=True)) == [(0, 10), (2, 9), (10, 15)]


def test_nothing_in_the_system_has_no_law():
    tables = from_memory(MemorySink())
    assert all(map(math.isnan, steps.littles_law(tables.programs, tables.calls).values()))
    assert math.isnan(steps.per_minute(tables.calls, (0.0, 0.0)).value)
    assert isinstance(steps.steps(tables.programs, tables.calls), pd.DataFrame)


def test_it_holds_for_any_log_whose_programs_have_one_thread():
    tables = from_memory(memory(400, rate=2.0))
    got = steps.littles_law(tables.programs, tables.calls)
    assert np.isfinite(got["product"])
    assert abs(got["deviation"]) < 0.1

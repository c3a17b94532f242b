"""Holds, worst turns, and what gates, retention and environments say of themselves."""

import math

import pandas as pd
import pytest

from bench import holds
from bench.eventlog import EventLog, from_memory, read_tables
from bench.records import MemorySink, ProgramRow
from bench.summary import Context, measure, pool
from tests.unit.bench.rows import fill, memory
from vocabulary import Call, Decision, Finished


def calls_of(*rows):
    """(program, hold, other wait, execution) per call, one after the other."""
    sink = MemorySink()
    now = 0.0
    for seq, (program, hold, wait, work) in enumerate(rows):
        end = now + hold + wait + work
        sink.call(
            Finished(Call(seq, program, "", seq, 100 * (program + 1)), 0, now, end - work, end, end, 10,
                     decode_s=work, wait_s=hold + wait, hold_s=hold)
        )  # fmt: skip
        now = end
    for program in sorted({row[0] for row in rows}):
        sink.program(ProgramRow(program, "toy", 0.0, now, "finished"))
    return from_memory(sink)


def decided(*rows):
    return pd.DataFrame(
        [Decision(time, 0, program, rule, 0, value) for time, program, rule, value in rows],
        columns=list(Decision._fields),
    )


def test_holds_are_of_all_calls_and_a_part_of_their_wait():
    tables = calls_of((0, 0, 1, 1), (0, 90, 10, 1), (1, 0, 1, 1), (2, 700, 0, 1))
    got = holds.holds(tables.calls, [0, 1, 2])
    assert got["mean"].value == 790 / 4
    assert got["max"].value == 700
    assert got["calls_share"].value == 0.5
    assert got["wait_share"].value == 790 / 802
    assert (got["over_60_s"].value, got["over_600_s"].value) == pytest.approx((2 / 3, 1 / 3))
    assert "n too small" in got["p95"].note


def test_names_are_the_same_with_and_without_holds():
    held, free = calls_of((0, 5, 1, 1)), calls_of((0, 0, 1, 1))
    assert set(holds.holds(held.calls, [0])) == set(holds.holds(free.calls, [0]))


def test_without_a_gate_nothing_is_held():
    tables = from_memory(memory())
    got = measure(tables, Context(kv_blocks=1000))
    assert (got["hold.mean"].value, got["hold.max"].value, got["hold.calls_share"].value) == (0, 0, 0)
    assert not [name for name in got if name.startswith(("gate.", "keep.", "env."))]


def test_a_session_is_as_bad_as_its_worst_turn():
    tables = calls_of((0, 0, 1, 1), (0, 90, 10, 1), (1, 0, 1, 4))
    got = holds.worst_turns(tables.calls, [0, 1])
    assert (got["mean"].value, got["max"].value) == ((101 + 5) / 2, 101)
    tables.calls["aborted"] = True
    assert holds.worst_turns(tables.calls, [0, 1]) == {}


def test_sessions_have_their_longest_context_and_hold():
    tables = calls_of((0, 5, 1, 1), (0, 90, 10, 1), (1, 0, 1, 4))
    got = holds.sessions(tables.programs, tables.calls).to_dict("records")
    assert got == [
        {"program": 0, "context": 110, "hold": 90, "held": 95, "worst": 101},
        {"program": 1, "context": 210, "hold": 0, "held": 0, "worst": 5},
    ]


def test_a_pause_lasts_until_the_program_is_let_in_again():
    rows = decided(
        (0.0, 1, "gate:admit:room", 10), (1.0, 1, "gate:pause:over", 20), (2.0, 2, "gate:pause:over", 20),
        (5.0, 1, "gate:hold:paused", 20), (9.0, 1, "gate:resume:room", 20), (11.0, 2, "gate:release:end", 0),
        (12.0, 2, "gate:move:room", 20),
    )  # fmt: skip
    got = holds.gate(rows)
    assert (got["pause"], got["resume"], got["move"], got["hold"], got["force"]) == (2, 1, 1, 1, 0)
    assert (got["paused_s"], got["paused_max_s"]) == (8.0, 8.0)
    assert math.isnan(holds.gate(rows[:1])["paused_s"])
    assert holds.gate(decided((0.0, 1, "keep:keep:shell", 3.0))) == {}


def test_regret_is_of_absences_that_are_over_and_prices_are_no_choices():
    rows = decided(
        (0.0, 1, "keep:keep:shell", 9.0), (0.0, 1, "keep:price:keep", 2.0), (0.0, 1, "keep:price:evict", 5.0),
        (3.0, 1, "keep:back:shell", 0.0), (4.0, 2, "keep:evict:price", 4.0), (8.0, 2, "keep:gone:price", 6.0),
        (8.0, 3, "keep:evict:", 8.0), (9.0, 3, "keep:back:", math.nan),
    )  # fmt: skip
    got = holds.keep(rows)
    assert (got["keep"], got["evict"], got["back"], got["gone"]) == (1, 2, 2, 1)
    assert got["kept_share"] == 1 / 3
    assert (got["regret"], got["right_share"]) == (3.0, 0.5)
    assert holds.keep(rows[:0]) == {}


def test_regret_is_told_tool_by_tool():
    rows = decided(
        (0.0, 1, "keep:keep:shell", 9.0), (0.0, 1, "keep:price:keep", 2.0), (3.0, 1, "keep:back:shell", 4.0),
        (4.0, 2, "keep:evict:mcp:search", 4.0), (8.0, 2, "keep:gone:mcp:search", 6.0),
        (8.0, 3, "keep:evict:", 8.0), (9.0, 3, "keep:back:", math.nan),
    )  # fmt: skip
    got = holds.regrets(rows).set_index("tool")
    assert got.regret.to_dict() == pytest.approx(
        {"mcp:search": 6.0, "shell": 4.0, "unknown": math.nan}, nan_ok=True
    )
    assert got.loc["shell", ["n", "kept", "evicted"]].tolist() == [1, 1, 0]
    assert holds.regrets(rows[:0]).empty


def test_disk_is_averaged_over_time():
    rows = decided(
        (0.0, 1, "env:prepare", 4.0), (10.0, 1, "env:ready", 10.0), (10.0, 1, "env:wait", 3.0),
        (10.0, 2, "env:prepare", 8.0), (15.0, 2, "env:ready", 5.0), (20.0, 1, "env:teardown", 8.0),
        (30.0, 1, "env:gone", 4.0),
    )  # fmt: skip
    got = holds.environment(rows, until=40.0)
    assert got["disk_gb"] == (10 * 4 + 20 * 8 + 10 * 4) / 40
    assert (got["peak_disk_gb"], got["prepare_s"], got["waits"], got["wait_s"]) == (8.0, 7.5, 1.0, 3.0)
    assert holds.environment(rows[:0], until=40.0) == {}


def test_policies_decisions_are_read_from_disk_and_no_others(tmp_path):
    log = EventLog(tmp_path)
    log.total(fill(log, 20))
    log.decisions([Decision(1.0, 0, 5, "gate:pause:over", 0, 7.0), Decision(2.0, -1, 5, "env:wait", 0, 3.0)])
    log.finish()
    got = read_tables(tmp_path).decisions
    assert got.rule.tolist() == ["gate:pause:over", "env:wait"]
    assert got["value"].tolist() == [7.0, 3.0]


def test_numbers_that_one_seed_does_not_have_are_not_pooled():
    def summary(seed, **more):
        metrics = {name: {"value": v, "note": ""} for name, v in ({"a": 1.0} | more).items()}
        return {"seed": seed, "metrics": metrics, "outcomes": {}, "calls": 1, "levels": {}, "queues": 1,
                "trend": {"verdict": "steady"}, "warnings": []}  # fmt: skip

    got = pool([summary(1, **{"gate.pause": 2.0}), summary(2)])
    assert set(got["metrics"]) == {"a"}

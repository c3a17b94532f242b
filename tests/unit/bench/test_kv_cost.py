"""Where the KV goes: against an engine that adds it up step by step, and in cases that can be counted."""

import math

import numpy as np
import pandas as pd
import pytest

from bench.eventlog import from_memory
from bench.kv_cost import PARTS, Computed, account, caching, chains, held, numbers, survival
from bench.records import EngineTotals, MemorySink, ProgramRow
from tests.unit.bench.kv_oracle import accounted as accounted_run
from tests.unit.bench.kv_oracle import meter
from tests.unit.bench.rows import memory
from vocabulary import Call, Finished


def exponential(rng):
    return rng.expovariate(1 / 3)


def heavy(rng):
    return rng.lognormvariate(0.0, 1.5)


def shares(run):
    """Of each engine: what the log says, and the meter, as shares of the capacity."""
    for row, spent in zip(accounted_run(run).to_dict("records"), run.spent, strict=True):
        assert math.fsum(row[part] for part in PARTS) == pytest.approx(row["capacity"], rel=1e-12)
        assert math.fsum(spent.values()) == pytest.approx(row["capacity"], rel=1e-9)
        overlap = row.pop("overlap")
        yield (
            {name: v / row["capacity"] for name, v in row.items()} | {"overlap": overlap},
            {name: v / row["capacity"] for name, v in spent.items()},
        )


def agrees(got, true, caching):
    """Phases within half a percent of the capacity and a tenth of themselves, caching within ``caching``."""
    for part in ("decode", "prefill", "recompute"):
        assert got[part] == pytest.approx(true[part], abs=0.005)
        assert got[part] == pytest.approx(true[part], rel=0.1, abs=0.001)
    assert got["caching"] == pytest.approx(true["caching"], abs=caching)


def test_with_room_for_all_nothing_is_lost_and_the_split_is_exact():
    run = meter(16, kv_blocks=4000, tool_s=exponential, concurrency=8, shared=False)
    ((got, true),) = shares(run)
    agrees(got, true, caching=0.001)
    assert got["recompute"] == true["recompute"] == 0.0
    assert got["caching_low"] == pytest.approx(got["caching_high"], abs=1e-9)


@pytest.mark.parametrize("tool_s", [exponential, heavy])
def test_where_content_is_evicted_the_bounds_hold_and_the_estimate_is_near(tool_s):
    run = meter(24, kv_blocks=600, tool_s=tool_s, concurrency=12, shared=False)
    ((got, true),) = shares(run)
    agrees(got, true, caching=0.03)
    assert true["recompute"] > 0.003
    assert got["caching_low"] < true["caching"] < got["caching_high"]
    assert got["caching_low"] < got["caching"] < got["caching_high"]


def test_a_shared_prefix_is_not_counted_twice():
    run = meter(24, kv_blocks=600, tool_s=exponential, concurrency=12)
    ((got, true),) = shares(run)
    agrees(got, true, caching=0.03)
    assert got["overlap"] > 1.05


def test_preempted_calls_are_recompute():
    run = meter(12, kv_blocks=250, tool_s=lambda rng: 0.02, concurrency=8, shared=False, system="mlfq",
                reply=(40, 90))  # fmt: skip
    ((got, true),) = shares(run)
    assert run.tables.calls.preemptions.sum() > 10
    for part in ("decode", "prefill", "recompute"):
        assert got[part] == pytest.approx(true[part], abs=0.02)
    assert true["recompute"] > 0.05


def test_programs_that_change_engines_leave_their_kv_behind():
    for got, true in shares(meter(24, kv_blocks=500, tool_s=exponential, concurrency=12, engines=2)):
        agrees(got, true, caching=0.1)


@pytest.mark.parametrize("system", ["thunderagent", "continuum-ttl"])
def test_holds_and_retention_leave_the_split_as_near(system):
    """Neither is told to the accounting: what was held or kept shows in the returns."""
    run = meter(24, kv_blocks=700, tool_s=exponential, concurrency=12, system=system)
    ((got, true),) = shares(run)
    agrees(got, true, caching=0.04)


def test_branches_share_what_they_started_from():
    ((got, true),) = shares(meter(12, kv_blocks=900, tool_s=exponential, concurrency=6, fork=True))
    agrees(got, true, caching=0.1)


# -- cases that can be counted ---------------------------------------------------------------------


def row(program, index, start, end, prompt, output, cached=0, *, thread="", engine=0, parents=(), **more):
    """A call that is computed in [start, end]: the first second of it prefill."""
    call = Call(program * 100 + index, program, thread, index, prompt, parents=parents)
    return Finished(
        call, engine, start, start, start + 1.0, end, output, cached, prompt - cached,
        prefill_s=1.0, decode_s=end - start - 1.0, steps=output, **more,
    )  # fmt: skip


def tables_of(calls, block_seconds, engines=1):
    sink = MemorySink()
    sink.calls += calls
    for program in sorted({c.call.program for c in calls}):
        mine = [c for c in calls if c.call.program == program]
        sink.programs.append(
            ProgramRow(program, "toy", mine[0].t_arrive, max(c.t_end for c in mine), "finished")
        )
    zero = dict.fromkeys(EngineTotals._fields[1:], 0)
    sink.totals += [EngineTotals.of(i, zero | {"kv_block_seconds": block_seconds}) for i in range(engines)]
    return from_memory(sink)


def accounted(tables, kv_blocks=100, **more):
    return account(tables.programs, chains(tables.calls), tables.engine, tables.totals, kv_blocks, **more)


def test_two_calls_with_a_tool_between_them_in_numbers():
    """160 + 16 tokens; away for 10 s; 320 tokens of which 160 are found, of 160 (its whole blocks) it had."""
    calls = [row(0, 0, 0.0, 9.0, 160, 16), row(0, 1, 19.0, 28.0, 320, 16, 160)]
    context = (160 * 1 + 168 * 8) + (320 * 1 + 328 * 8)
    tables = tables_of(calls, context / 16)
    (got,) = accounted(tables).to_dict("records")
    assert got["capacity"] == 1600 * 28
    assert got["overlap"] == pytest.approx(1.0)
    assert (got["decode"], got["prefill"], got["recompute"]) == pytest.approx((168 * 8 + 328 * 8, 480, 0))
    assert got["caching"] == got["caching_low"] == got["acting"] == 160 * 10
    assert got["unused"] == pytest.approx(1600 * 28 - context - 1600)


def test_what_was_computed_before_and_lost_is_recompute():
    calls = [row(0, 0, 0.0, 9.0, 160, 17), row(0, 1, 19.0, 28.0, 320, 16, 16)]
    second = chains(tables_of(calls, 1.0).calls).iloc[1]
    assert (second.had, second.lost, second.before_left) == (176, 160, 176)
    parts = held(chains(tables_of(calls, 1.0).calls)).iloc[1]
    assert parts.recompute == pytest.approx(320 * 160 / 304)
    assert parts.prefill == pytest.approx(320 * 144 / 304)
    capped = held(chains(tables_of(calls, 1.0).calls), most_lost=80).iloc[1]
    assert capped.recompute == pytest.approx(320 * 80 / 304)


def test_a_prefill_in_chunks_holds_less_at_first():
    """Of 400 tokens in four steps 100, 200, 300 and 400 are there: 250 on average."""
    calls = [row(0, 0, 0.0, 5.0, 400, 3)]
    calls[0].steps = 4 + 2
    assert held(chains(tables_of(calls, 1.0).calls)).prefill[0] == 250


def test_a_branch_had_what_its_parent_left():
    calls = [
        row(0, 0, 0.0, 9.0, 160, 17),
        row(0, 0, 10.0, 12.0, 200, 5, 0, thread="0", parents=(("", 0),)),
        row(0, 0, 10.0, 12.0, 100, 5, 96, thread="1", parents=(("", 0),)),
    ]
    rows = chains(tables_of(calls, 1.0).calls).set_index("thread")
    assert rows.had.to_dict() == {"": 0, "0": 176, "1": 96}
    assert rows.lost.to_dict() == {"": 0, "0": 176, "1": 0}
    assert rows.foreign.to_dict() == {"": 0, "0": 0, "1": 96}


def test_a_stay_that_nobody_saw_the_end_of_has_no_lower_bound():
    """A program that moves: what it left is estimated from the others' returns at the same age."""
    stays = pd.DataFrame(
        {"engine": 0.0, "start": 0.0, "arrived": 8.0, "end": 10.0, "own": 160.0, "kept": [160.0, np.nan]}
    )
    quiet = Computed(np.zeros(0), np.zeros(1))
    got = caching(stays, quiet)
    assert got == {"caching": 3200.0, "caching_low": 1600.0, "caching_high": 3200.0, "acting": 2560.0}
    lost = caching(stays.assign(kept=[0.0, np.nan]), Computed(np.array([5.0]), np.array([0.0, 1000.0])))
    assert (lost["caching_low"], lost["caching_high"]) == (0.0, 3200.0)
    assert 0 < lost["caching"] < 3200


def test_the_curve_never_rises_and_weighs_what_it_saw():
    curve = survival(np.array([3.0, 1.0, 2.0, 3.0]), np.array([0.1, 0.5, 0.9, 0.3]), np.array([1, 1, 3, 1.0]))
    assert curve.ages.tolist() == [0, 1, 2, 3]
    assert curve.shares.tolist() == pytest.approx([1, 0.8, 0.8, 0.2])
    assert curve.at(np.array([0.5, 9.0])).tolist() == pytest.approx([0.9, 0.2])
    assert survival(np.zeros(0), np.zeros(0), np.zeros(0)).at(np.array([5.0])) == 1


def test_the_numbers_of_a_run_are_shares_and_token_seconds_a_step():
    tables = tables_of([row(0, 0, 0.0, 9.0, 160, 16), row(0, 1, 19.0, 28.0, 320, 16, 160)], 276.0)
    got = numbers(accounted(tables), tables.calls, 28.0)
    assert math.fsum(got[part] for part in PARTS) == pytest.approx(1.0)
    assert got["caching"] == got["acting"] == 1600 / 44800
    assert got["caching_per_step"] == 800
    assert got["acting_tokens"] == 1600 / 28
    assert got["unused_low"] <= got["unused"] <= got["unused_high"]


def test_an_engine_that_does_not_say_what_is_in_use_has_no_split():
    tables = tables_of([row(0, 0, 0.0, 9.0, 160, 16)], 0.0)
    (got,) = accounted(tables).to_dict("records")
    assert all(math.isnan(got[part]) for part in PARTS)
    assert accounted(from_memory(MemorySink())).empty


def test_calls_that_never_ran_held_nothing():
    """Aborted at the door: no engine, no step."""
    never = Finished(Call(7, 0, "", 1, 500), -1, 9.0, t_end=12.0, wait_s=3.0, hold_s=3.0, aborted=True)
    calls = [row(0, 0, 0.0, 9.0, 160, 16), never]
    assert len(chains(tables_of(calls, 1.0).calls)) == 1
    assert math.isfinite(accounted(tables_of(calls, 50.0)).decode[0])


def test_a_made_up_log_still_sums_to_the_capacity():
    tables = from_memory(memory(60))
    tables.totals["kv_block_seconds"] = 900.0
    (got,) = accounted(tables, 10_000).to_dict("records")
    assert math.fsum(got[part] for part in PARTS) == pytest.approx(got["capacity"])
    assert min(got[part] for part in PARTS) >= 0

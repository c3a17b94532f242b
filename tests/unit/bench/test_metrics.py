import math

import numpy as np
import pandas as pd
import pytest

from bench import metrics
from bench.checks import broken_rules, check
from bench.errors import RuleBroken
from bench.eventlog import from_memory
from bench.offline import Offline
from bench.records import EngineTotals
from bench.summary import Context, describe, measure, pool
from tests.unit.bench.rows import memory


@pytest.fixture
def run():
    return from_memory(memory())


def programs(arrive, end):
    n = len(arrive)
    return pd.DataFrame(
        {
            "program": range(n),
            "t_arrive": arrive,
            "t_end": end,
            "outcome": ["finished"] * n,
            "output_tokens": [10] * n,
        }
    )


def test_throughput_over_the_busy_window(run):
    tables = run
    got = metrics.throughput(tables.programs, tables.calls)
    start, end = tables.programs.t_arrive.min(), tables.programs.t_end.max()
    assert got["window_s"] == end - start
    assert got["programs_per_s"] == 200 / (end - start)
    assert got["output_tokens_per_s"] == pytest.approx(tables.calls.output_tokens.sum() / (end - start))


def test_the_measured_window_has_neither_ramp_up_nor_drain():
    frame = programs([0.0, 4.0, 10.0], [9.0, 30.0, 40.0])
    assert metrics.measured_window(frame) == (2.0, 10.0)
    assert metrics.measured_window(frame.iloc[:0]) == (0.0, 0.0)


def test_measured_rates_are_the_events_of_the_window_with_intervals(run):
    tables = run
    start, end = metrics.measured_window(tables.programs)
    got = metrics.measured_rates(tables.programs, tables.calls)
    inside = tables.calls[tables.calls.t_end.between(start, end)]
    assert got["calls_per_s"].value == pytest.approx(len(inside) / (end - start))
    assert got["output_tokens_per_s"].value == pytest.approx(inside.output_tokens.sum() / (end - start))
    assert all(rate.low < rate.value < rate.high for rate in got.values())
    few = tables.programs.iloc[:70]
    short = metrics.measured_rates(few, tables.calls)["programs_per_s"]
    assert math.isnan(short.low)
    assert "64 are needed" in short.note
    at_once = metrics.measured_rates(few.assign(t_arrive=0.0), tables.calls)["calls_per_s"]
    assert (math.isnan(at_once.value), at_once.note) == (True, "all programs arrive at once")


def test_measured_rates_cover_the_rate_of_a_steady_stream():
    rng = np.random.default_rng(11)
    calls = pd.DataFrame({"t_end": [0.0], "aborted": [False], "output_tokens": [1]})
    covered = 0
    for _ in range(100):
        arrive = np.cumsum(rng.exponential(0.5, 700))
        rate = metrics.measured_rates(programs(arrive, arrive + rng.exponential(20.0, 700)), calls)
        covered += rate["programs_per_s"].low <= 2.0 <= rate["programs_per_s"].high
    assert covered >= 88


def test_seconds_per_token_both_ways():
    done = programs([0.0, 0.0], [10.0, 10.0])
    done["output_tokens"] = [1, 19]
    got = metrics.seconds_per_token(done)
    assert got["mean_of_ratios"].value == pytest.approx((10 + 10 / 19) / 2)
    assert got["ratio_of_means"].value == pytest.approx(1.0)


def test_one_token_replies_have_no_tpot(run):
    tables = run
    calls = tables.calls.copy()
    calls["output_tokens"] = 1
    got = metrics.call_latency(calls, tables.programs.program.tolist())
    assert got["tpot"]["mean"].note == "no data"
    assert got["ttft"]["mean"].value == pytest.approx((calls.t_first_token - calls.t_arrive).mean())


def test_percentiles_of_calls_are_over_calls(run):
    tables = run
    got = metrics.call_latency(tables.calls, tables.programs.program.tolist())["response"]["p95"]
    assert got.value == pytest.approx(np.quantile(tables.calls.t_end - tables.calls.t_arrive, 0.95))


def test_exec_shares_sum_to_one(run):
    got = metrics.exec_split(run.calls)
    assert sum(got.values()) == pytest.approx(1.0)
    assert got["swap"] == pytest.approx(run.calls.swap_s.sum() / run.programs.exec_s.sum())


def test_swapping_is_execution_on_the_critical_path_too(run):
    got = metrics.wait_exec(run.programs)
    assert got["cp_exec_s"] == pytest.approx(got["exec_s"])  # programs without forks


def test_an_engine_without_host_memory_says_nothing_of_it():
    said = dict.fromkeys(EngineTotals._fields[1:], 2.0)
    assert EngineTotals.of(0, said).swap_full == 2.0
    del said["swap_full"]
    assert EngineTotals.of(0, said).swap_full == 0
    del said["evicted"]
    with pytest.raises(KeyError, match="evicted"):
        EngineTotals.of(0, said)


def test_preemptions_are_split_by_cause(run):
    tables = run
    got = metrics.preemptions(tables.calls, tables.totals)
    assert got["total"] == got["displaced"] + got["evicted"] == tables.calls.preemptions.sum()


def test_littles_law(run):
    tables = run
    x = metrics.throughput(tables.programs, tables.calls)["programs_per_s"]
    cycle = metrics.response(metrics.finished(tables.programs)).mean()
    busy = metrics.busy_window(tables.programs)
    assert metrics.in_system(tables.programs, busy) == pytest.approx(x * cycle)


def test_programs_in_the_system_by_hand():
    frame = programs([0.0, 1.0, 2.0, 10.0], [4.0, 5.0, math.inf, 11.0])
    assert metrics.in_system(frame, (3.0, 5.0)) == pytest.approx((1 + 2 + 2) / 2)
    got = metrics.littles_law(frame)  # [2, 10]: ends at 4 and 5, after 4 s each
    assert got == pytest.approx(
        {"programs": (2 + 3 + 8) / 8, "programs_per_s": 2 / 8, "response_s": 4.0, "product": 1.0}
    )


def test_littles_law_holds_two_numbers_against_each_other():
    """Eight at a time: N is 8, X R agrees but for the edges, and a lost program would show."""
    rng = np.random.default_rng(13)
    free, rows = np.zeros(8), []
    for _ in range(2000):
        k = int(free.argmin())
        rows.append((free[k], free[k] + rng.exponential(5.0)))
        free[k] = rows[-1][1]
    frame = programs(*zip(*rows, strict=True))
    got = metrics.littles_law(frame)
    assert got["programs"] == pytest.approx(8.0, rel=1e-9)
    assert got["product"] == pytest.approx(8.0, rel=0.02)
    assert metrics.littles_law(frame.iloc[:1600])["programs"] == pytest.approx(8.0, rel=1e-9)
    assert metrics.littles_law(frame.drop(index=range(900, 1000)))["programs"] < 7.8


def test_trend_tells_steady_from_growing():
    rng = np.random.default_rng(1)
    arrive = np.cumsum(rng.exponential(1.0, 400))
    assert metrics.trend(programs(arrive, arrive + rng.exponential(3.0, 400)))["verdict"] == "steady"
    late = np.maximum.accumulate(arrive[0] + 1.5 * np.arange(1, 401))
    assert metrics.trend(programs(arrive, late))["verdict"] == "growing"
    assert metrics.trend(programs(arrive[:20], late[:20]))["verdict"] == "too short"
    assert metrics.trend(programs(np.zeros(100), late[:100]))["verdict"] == "too short"


def test_growth_is_what_came_less_what_left():
    arrive = np.arange(101.0)
    frame = programs(arrive, np.where(arrive < 50, arrive + 10.5, 200.0))
    got = metrics.trend(frame)
    came, left = (np.sum((t >= 20) & (t <= 100)) for t in (frame.t_arrive, frame.t_end))
    assert got["growth_per_s"] == pytest.approx((came - left) / 80)
    assert got["completed_share"] == left / came


def queue(rng, load, n=700, servers=8):
    """Programs of a queue with ``servers`` servers: Poisson arrivals, exponential service."""
    arrive = np.cumsum(rng.exponential(1.0, n))
    work = rng.exponential(load * servers, n)
    free, end = np.zeros(servers), np.empty(n)
    for i in range(n):
        k = int(free.argmin())
        free[k] = end[i] = max(arrive[i], free[k]) + work[i]
    return programs(arrive, end)


@pytest.mark.parametrize(("load", "least", "most"), [(0.5, 0, 1), (0.8, 0, 1), (0.95, 0, 6), (1.4, 58, 60)])
def test_a_long_memory_is_no_growth(load, least, most):
    """The backlog of a busy queue wanders for long; only past saturation does it grow."""
    rng = np.random.default_rng(12)
    verdicts = [metrics.trend(queue(rng, load))["verdict"] for _ in range(60)]
    assert least <= verdicts.count("growing") <= most
    assert "growing" in verdicts or load < 1
    assert "steady" in verdicts or load > 1


def test_the_page_warns_of_growth_only(run):
    tables = run
    arrive, n = tables.programs.t_arrive.to_numpy(), len(tables.programs)
    tables.programs["t_end"] = arrive + 0.6 * (arrive - arrive[0]) + 1.0
    growing = describe(tables, Context(1000))
    assert growing["trend"]["verdict"] == "growing"
    assert any("not sustained" in w for w in growing["warnings"])
    tables.programs["t_end"] = arrive + np.where((np.arange(n) // 6) == 16, 1000.0, 1e-3)
    unclear = describe(tables, Context(1000))
    assert unclear["trend"]["verdict"] == "unclear"
    assert unclear["warnings"] == []


def test_levels_are_those_of_finished_calls(run):
    tables = run
    tables.calls.loc[tables.calls.level == 2, "aborted"] = True
    got = metrics.level_occupancy(tables.calls)
    assert list(got) == ["0", "1"]
    assert sum(got.values()) == pytest.approx(1.0)


def test_sum_rules_hold_on_consistent_rows(run):
    tables = run
    assert broken_rules(tables) == []
    assert check(tables) == len(tables.programs) + len(tables.calls)


@pytest.mark.parametrize(
    ("table", "column", "rule"),
    [
        ("programs", "cp_tool_s", "critical path"),
        ("programs", "output_tokens", "calls' output_tokens"),
        ("programs", "wait_s", "calls' wait_s"),
        ("calls", "decode_s", "t_end - t_arrive of a call"),
        ("calls", "swap_s", "t_end - t_arrive of a call"),
        ("programs", "swap_s", "calls' swap_s"),
        ("programs", "hold_s", "calls' hold_s"),
        ("programs", "cp_swap_s", "critical path"),
        ("calls", "reprefill_tokens", "engines' computed_prefill_tokens"),
        ("calls", "preemptions", "engines' preemptions"),
        ("calls", "cached_tokens", "engines' hit_tokens"),
    ],
)
def test_each_sum_rule_catches_its_violation(run, table, column, rule):
    tables = run
    frame = getattr(tables, table)
    frame.loc[3, column] += 2**-30 if column.endswith("_s") else 1
    with pytest.raises(RuleBroken, match="bug") as caught:
        check(tables)
    assert rule in str(caught.value)


def test_a_hold_longer_than_the_wait_is_caught(run):
    run.calls.loc[3, "hold_s"] = run.calls.wait_s[3] + 2**-30
    assert any("hold_s <= wait_s" in line for line in broken_rules(run))


def test_time_counted_twice_on_a_critical_path_is_caught(run):
    """The overhead is what is left of the response, so the sum alone would always hold."""
    tables = run
    tables.programs.loc[3, "cp_decode_s"] += 1.0
    tables.programs.loc[3, "cp_overhead_s"] -= 1.0
    assert any("negative" in line for line in broken_rules(tables))


def test_engine_totals_that_contradict_themselves_are_caught(run):
    run.totals["evicted"] += 1
    (line,) = broken_rules(run)
    assert "displaced + evicted" in line


def test_orphan_calls_are_caught(run):
    tables = run
    tables.calls.loc[0, "program"] = 999
    assert any("belongs to a program" in line for line in broken_rules(tables))


def dry(tables, **changes):
    calls = tables.calls
    facts = Offline(
        len(calls), 0, 0, int(calls.prompt_tokens.sum()), int(calls.output_tokens.sum()), 0,
        len(tables.programs), fixed=True,
    )  # fmt: skip
    return facts._replace(**changes)


def test_the_log_holds_what_the_programs_do(run):
    tables = run
    assert broken_rules(tables, dry(tables)) == []
    for name in ("calls", "prompt_tokens", "output_tokens", "programs"):
        (line,) = broken_rules(tables, dry(tables, **{name: 7}))
        assert name.replace("_", " ") in line
        assert "(7)" in line


def test_a_call_that_is_nowhere_is_caught(run):
    """Sums inside the log cannot see it: program, calls and engine agree with each other."""
    tables = run
    facts = dry(tables, calls=len(tables.calls) + 1, output_tokens=int(tables.calls.output_tokens.sum()) + 9)
    with pytest.raises(RuleBroken, match=rf"calls \({len(tables.calls)}\)") as caught:
        check(tables, facts)
    assert caught.value.exit_code == 1
    assert broken_rules(tables, facts._replace(fixed=False)) == []
    tables.programs.loc[3, "outcome"] = "abandoned"
    assert broken_rules(tables, facts) == []


def test_summary_names_every_number_once(run):
    tables = run
    got = measure(tables, Context(1000, optimum=0.9))
    assert {
        "program.response.p95",
        "call.ttft.mean",
        "kv.optimum",
        "utilisation.busy",
        "exec.reprefill",
    } <= set(got)
    again = tables.calls.reprefill_tokens.sum() / tables.calls.prompt_tokens.sum()
    assert got["kv.hit_rate"].value + got["kv.computed"].value == pytest.approx(1 + again)


def test_several_seeds_are_pooled_with_t_intervals():
    parts = []
    for seed in range(4):
        sink = memory(seed=seed)
        parts.append(describe(from_memory(sink), Context(1000)) | {"seed": seed})
    got = pool(parts)
    mean = got["metrics"]["program.response.mean"]
    values = [p["metrics"]["program.response.mean"]["value"] for p in parts]
    assert mean["value"] == pytest.approx(np.mean(values))
    assert mean["method"] == "t over seeds"
    assert got["outcomes"] == {"finished": 800}
    assert got["levels"]["1"] == pytest.approx(np.mean([p["levels"]["1"] for p in parts]))
    assert any("exploratory" in w for w in got["warnings"])
    assert math.isnan(got["metrics"]["program.response.p99"]["value"])


def test_a_seed_without_the_number_is_no_smaller_sample():
    parts = []
    for seed in range(3):
        sink = memory(seed=seed)
        parts.append(describe(from_memory(sink), Context(1000, optimum=0.9)) | {"seed": seed})
    parts[1]["metrics"]["kv.optimum"] = {"value": None, "note": ""}
    got = pool(parts)["metrics"]["kv.optimum"]
    assert math.isnan(got["value"])
    assert got["note"] == "undefined for 1 of 3 seeds"


def test_calls_of_programs_that_gave_up_count():
    sink = memory()
    for row in sink.programs[:50]:
        row.outcome = "abandoned"
    tables = from_memory(sink)
    got = measure(tables, Context(1000))
    every = tables.calls.t_first_token - tables.calls.t_arrive
    assert got["call.ttft.mean"].value == pytest.approx(every.mean())
    assert got["program.response.mean"].value == pytest.approx(
        metrics.response(tables.programs[tables.programs.outcome == "finished"]).mean()
    )


def test_no_finished_program_is_no_crash():
    sink = memory(2)
    for row in sink.programs:
        row.outcome = "abandoned"
    got = describe(from_memory(sink), Context(10))
    assert got["metrics"]["program.response.mean"]["note"] == "no data"

import io

import pytest
from rich.console import Console

from reports import listing, schedule, summary, trace
from reports.numbers import counts, estimate, number, percent


def text(renderable):
    console = Console(file=io.StringIO(), width=120)
    console.print(renderable)
    return " ".join(console.file.getvalue().split())


@pytest.mark.parametrize(
    ("value", "expected"),
    [(None, "-"), (float("nan"), "-"), (0.0, "0"), (7.0, "7"), (1234567.0, "1,234,567"), (123.4, "123"),
     (12.34, "12.3"), (1.234, "1.23"), (0.01234, "0.0123"), (0.0000123, "1.23e-05"), (-2.5, "-2.50")],
)  # fmt: skip
def test_numbers(value, expected):
    assert number(value) == expected


def test_estimates_and_shares():
    assert estimate({"value": 2.5, "low": 2.0, "high": 3.25, "note": ""}) == "2.50\n[2, 3.25]"
    assert estimate({"value": None, "note": "n too small (3 < 64)"}) == "n too small (3 < 64)"
    assert estimate({"value": 1.0, "low": None, "high": None}) == "1"
    assert estimate({"value": 5.0, "low": 4.0, "high": None, "note": "no upper end"}) == "5\n[4, inf)"
    short = {"value": 1.0, "low": None, "high": None, "note": "no interval (n 5 < 32)"}
    assert estimate(short) == "1\n(no interval)"
    assert estimate(None) == "-"
    assert percent(0.123) == "12.3%"
    assert percent(None) == "-"
    assert counts({"a": 1, "b": 2000}) == "a 1, b 2,000"


def page(**changes):
    base = {
        "system": "atlas", "workload": "weka [x]", "load": "12 programs", "seed": 1, "badge": "SIMULATED",
        "metrics": {"program.response.mean": {"value": 3.5, "low": 3.0, "high": 4.0, "note": ""}},
        "outcomes": {"finished": 9}, "calls": 30, "trend": {"verdict": "too short"},
        "skipped": {"prompt over the context": 3}, "where": {"prompt over the context": "a.json:4"},
        "warnings": ["the backlog grows"],
        "kinds": {"a": {"programs": 4.0, "response_s": 1.0, "s_per_token": 0.1}},
        "results": "results/abc", "repeat": "bench run", "result_hash": "ff",
    }  # fmt: skip
    return base | changes


def test_a_summary_shows_skips_warnings_and_brackets():
    got = text(summary.render(page()))
    for word in (
        "weka [x]",
        "[3, 4]",
        "skipped 3: prompt over the context (first at a.json:4)",
        "backlog grows",
    ):
        assert word in got
    assert "within-run" in got
    assert summary.footer(page()).splitlines() == [
        "result hash ff", "results     results/abc", "repeat      bench run"
    ]  # fmt: skip


def test_throughput_has_both_windows_and_an_unclear_trend_a_note():
    rates = {
        f"{group}.{name}_per_s": {"value": value, "low": low, "high": 3.0, "note": note}
        for group, value, low, note in (("throughput", 1.5, None, ""), ("measured", 2.0, 1.0, ""))
        for name in ("programs", "calls", "output_tokens")
    }
    trend = {"verdict": "unclear", "growth_per_s": 0.1, "growth_low": -0.1, "growth_high": 0.3,
             "completed_share": 0.95}  # fmt: skip
    got = text(summary.render(page(metrics=rates, trend=trend)))
    for word in (
        "1.50 programs/s, 1.50 calls/s, 1.50 output tok/s over a busy window",
        "(H = last arrival): 2 [1, 3] programs/s, 2 [1, 3] calls/s, 2 [1, 3] output tok/s",
        "unclear: backlog +0.1 [-0.1, +0.3] programs per s",
        "more programs (--n) would tell",
    ):
        assert word in got
    rates["measured.programs_per_s"]["note"] = "no interval (9 programs end in it, 64 are needed)"
    assert "64 are needed" in text(summary.render(page(metrics=rates)))


def test_levels_are_shown_where_there_are_several():
    assert "level 0: 75.0%, 2: 25.0%" in text(summary.render(page(levels={"0": 0.75, "2": 0.25})))
    assert "level 0: 100.0%" in text(summary.render(page(levels={"0": 1.0}, queues=8)))
    assert "levels" not in text(summary.render(page(levels={"0": 1.0}, queues=1)))


def test_a_closed_loop_shows_both_sides_of_littles_law():
    numbers = {"programs": 3.0, "programs_per_s": 0.5, "response_s": 5.8, "product": 2.9}
    metrics = {f"littles_law.{k}": {"value": v} for k, v in numbers.items()}
    line = "3 programs in the system; 0.5 programs/s x 5.80 s = 2.90 in [.2 H, H]; equal in the long run"
    assert line in text(summary.render(page(metrics=metrics, trend={"verdict": "closed loop"})))
    assert "Little" not in text(summary.render(page(metrics=metrics)))


def test_an_interval_without_an_upper_end_has_a_footnote():
    tail = {"program.response.p50": {"value": 5.0, "low": 4.0, "high": None, "note": "no upper end"}}
    assert "[x, inf): the tail is in few batches" in text(summary.render(page(metrics=tail)))
    assert "inf)" not in text(summary.render(page()))


def test_the_busy_window_comes_second_and_says_what_is_in_it():
    got = text(summary.render(page()))
    assert got.index("[.2 H, H]") < got.index("over a busy window")
    assert "over the busy window, ramp-up and drain included: engines busy" in got


def test_several_seeds_say_so():
    assert "(means of 3 seeds)" in text(summary.render(page(seeds=[1, 2, 3])))
    assert "30 calls in all 3 seeds" in text(summary.render(page(seeds=[1, 2, 3])))
    assert "means of" not in text(summary.render(page()))
    assert "seeds 1-3" in text(summary.render(page(seeds=[1, 2, 3])))
    assert "t over 3 seeds" in text(summary.render(page(seeds=[1, 2, 3])))


def test_lists():
    assert text(listing.render("things", [])) == "things: none"
    assert "a [b] 1.50" in text(listing.render("things", [{"name": "a [b]", "x": 1.5}]))


def test_schedules_show_verdicts():
    entry = {
        "system": "FCFS",
        "steps": ["AB", "C"],
        "waits": {"A": 1.0},
        "total_wait": 1.0,
        "paper": 2,
        "makespan": 2.0,
    }
    claim = {"statement": "wait", "expected": 2, "got": 1.0, "verdict": "differs", "note": "why"}
    report = {
        "name": "n",
        "title": "t",
        "source": "s",
        "programs": {"A": [1]},
        "schedules": [entry],
        "claims": [claim],
    }
    assert "differs: wait: expected 2, got 1 (why)" in text(schedule.render(report))


def test_residual_life_tables():
    row = {"age": 0.0, "alive": 10.0, "mean_left": 5.5, "hazard": 0.25}
    table = {"quantity": "calls", "verdict": "rises", "explanation": "so", "rows": [row]}
    got = text(trace.residual_life(table))
    assert "mean residual life of a program's calls: rises" in got
    assert "0 10 5.50 25.0%" in got
    table["caveat"] = "3 skipped, so the longest sessions may be missing"
    assert "calls: rises (3 skipped, so the longest sessions" in text(trace.residual_life(table))

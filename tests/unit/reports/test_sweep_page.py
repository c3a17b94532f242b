import io

from rich.console import Console

from reports import sweep


def text(renderable):
    console = Console(file=io.StringIO(), width=140)
    console.print(renderable)
    return console.file.getvalue()


def point(system, verdict="steady", seeds=(1,), **axes):
    values = {
        "program.s_per_token.mean_of_ratios": (0.0123, 0.011, 0.0141),
        "program.s_per_token.ratio_of_means": (0.02, None, None),
        "program.response.p95": (None, None, None),
        "measured.output_tokens_per_s": (512.0, 500.0, None),
        "kv.hit_rate": (0.5, None, None),
        "wait.wait_share": (0.25, None, None),
    }
    return {
        "axes": {"system": system, "rate": "0.5", **axes},
        "workload": "mcts:lats",
        "badge": "SIMULATED (engine sim)",
        "seeds": list(seeds),
        "outcomes": {"finished": 4},
        "trend": {"verdict": verdict},
        "warnings": [],
        "metrics": {
            name: {"value": v, "low": low, "high": high, "note": "n too small" if v is None else ""}
            for name, (v, low, high) in values.items()
        },
    }


def test_a_row_has_the_numbers_and_their_intervals():
    lines = text(sweep.render([point("atlas")])).splitlines()
    assert lines[:2] == ["mcts:lats, seed 1", "SIMULATED (engine sim)"]
    (row,) = (line.split() for line in lines if line.startswith("atlas"))
    assert row == ["atlas", "0.5", "0.0123", "0.02", "-", "512", "50.0%", "25.0%", "steady"]
    assert "[0.011, 0.0141]" in "".join(lines)
    assert "verdicts need at least 8 seeds" in lines[-1]


def test_rates_that_are_not_sustained_are_marked_and_explained():
    page = text(sweep.render([point("atlas"), point("plas", "unclear, growing", seeds=range(1, 9))]))
    (row,) = (line for line in page.splitlines() if line.startswith("plas"))
    assert row.rstrip().endswith("not sustained")
    assert "the backlog grows in at least one seed" in page
    assert "8 seeds from 1 on" in page
    steady = text(sweep.render([point("atlas", seeds=range(8))]))
    assert "sustained" not in steady
    assert "exploratory" not in steady


def test_other_axes_get_a_column_and_missing_ones_a_dash():
    page = text(sweep.render([point("atlas", beta="2"), point("plas")]))
    rows = [line.split()[:3] for line in page.splitlines() if line.startswith(("atlas", "plas"))]
    assert rows == [["atlas", "0.5", "2"], ["plas", "0.5", "-"]]


def test_programs_that_did_not_finish_are_counted():
    lost = {**point("atlas"), "outcomes": {"finished": 3, "abandoned": 1}}
    assert "1 rows with programs that did not finish" in text(sweep.render([lost, point("plas")]))


def test_what_is_about_to_run_in_words():
    facts = {"cells": 1200, "there": 0, "programs": 5000, "calls": 1234567}
    assert sweep.plan(facts) == "1,200 cells; 5,000 programs and about 1,234,567 calls in all of them"
    assert "1,200 cells, 3 of them already there;" in sweep.plan({**facts, "there": 3})

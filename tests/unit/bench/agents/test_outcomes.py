"""Outcomes, tokens and shares of a run by hand."""

import json
from types import SimpleNamespace

import pytest

from bench.agents.mcnemar import wilson
from bench.agents.money import priced
from bench.agents.outcomes import FILE, outcomes, said, tokens
from bench.agents.rows import live_run
from bench.agents.totals import pooled
from bench.live.rows import rows_of
from reports.agents import lines, solved
from tests.unit.bench.agents.runs import began, call, ended, event, log_of, row, run_of, sandbox, step, tool

CALLS = [call(0, "main", 0, 1.0, 3.0), call(0, "main", 1, 5.0, 8.0), call(1, "main", 0, 1.0, 4.0)]
EVENTS = [
    began(0, 0.0), began(1, 0.0), sandbox(0, 0.0, "init", 0.5), tool(0, 3.0, 5.0), ended(0, 8.0),
    ended(1, 4.0, "timeout", False, "600 s are over"), sandbox(0, 8.0, "teardown", 0.25, disk=2_000_000),
    event("over", 9.0, leaks=[]),
]  # fmt: skip
ROWS = {
    "0.main.0": row(0.5, 0.5, 1.0, 1.0),
    "0.main.1": row(0.0, 1.0, 1.0, 5.5),
    "1.main.0": row(1, 1, 0.5, 1.0),
}
STEPS = [step(1.0, 4.0, [("0.main.0", 3), ("1.main.0", 1)])]


def plan(scripted=True):
    facts = {
        "agent": "react",
        "suite": "repair",
        "sandbox": "bwrap",
        "llm": "scripted",
        "versions": {"x": "1.0"},
    }
    return SimpleNamespace(
        facts_of_agents=lambda: facts, tasks=[SimpleNamespace(name=f"task-{i}") for i in range(2)],
        asked=SimpleNamespace(scripted=scripted), sandbox="bwrap", served=SimpleNamespace(kind="cpu"),
    )  # fmt: skip


def found(calls=CALLS, events=EVENTS, scripted=True):
    run, logs = run_of(calls, events), [log_of(ROWS, STEPS)]
    return run, outcomes(plan(scripted), run, logs, rows_of(live_run(run, logs), logs))


def test_by_hand():
    run, made = found()
    assert made["programs"][0] == {
        "program": 0, "task": "task-0", "outcome": "finished", "success": True, "why": "",
        "latency_s": 8.0, "calls": 2, "tools": 1, "notes": {},
    }  # fmt: skip
    totals = made["totals"]
    assert (totals["success"]["x"], totals["success"]["n"], totals["success"]["method"]) == (1, 2, "Wilson")
    assert totals["why_not"] == {"600 s are over": 1}
    assert totals["shares"] == {"llm": 4.0 / 8.0, "tool": 2.0 / 8.0, "rest": 2.0 / 8.0}  # of the finished one
    assert totals["cost"]["by_program"] == {"0": 2.25, "1": 0.75}
    assert totals["cost"]["per_solved"] == 3.0
    summary = said(made, run)
    assert summary["metrics"]["agent.success"]["value"] == 0.5
    assert summary["metrics"]["agent.token_difference"]["value"] == 0
    assert summary["warnings"] == [
        "1 programs did not come to their end (1 timeout), program 1 first: 600 s are over; latencies are of "
        "those that did"
    ]
    assert "by_program" not in summary["agents"]["cost"]


def test_tokens_are_the_schedulers_and_calls_that_differ_are_named():
    run = run_of([call(0, "main", 0, 1.0, 3.0, out=4, scripted=5), *CALLS[1:]], EVENTS)
    told = tokens(run, [log_of(ROWS)])
    assert (told["engine"], told["scripted"], told["difference"], told["differ"]) == (
        12,
        13,
        -1,
        ["0.main.0"],
    )
    cut = run_of([call(0, "main", 0, 1.0, 3.0, outcome="cut"), *CALLS[1:]], EVENTS)
    assert tokens(cut, [log_of(ROWS)])["calls"] == 2


def test_leaks_and_differences_are_warnings():
    events = [*EVENTS[:-1], event("over", 9.0, leaks=["port 5 is still open"])]
    run, made = found([call(0, "main", 0, 1.0, 3.0, scripted=9), *CALLS[1:]], events)
    warnings = said(made, run)["warnings"]
    assert "1 things were left after the run: port 5 is still open" in warnings
    assert any("1 calls differ, 0.main.0 first" in text for text in warnings)


def test_what_critical_paths_leave_out_is_a_warning_from_a_hundredth_on():
    run, made = found()
    assert made["totals"]["path"] == {"dropped_s": 0.0, "share": 0.0}
    early = [tool(0, 2.5, 5.0) if one["event"] == "tool" else one for one in EVENTS]  # inside of a call
    run, made = found(events=early)
    assert made["totals"]["path"] == {"dropped_s": 1.5, "share": 1.5 / 12}
    assert any("leave out 1.5 s" in text and "12.5%" in text for text in said(made, run)["warnings"])


def test_a_real_model_has_no_script_to_agree_with():
    run, made = found(scripted=False)
    assert made["totals"]["tokens"] == {}
    assert "agent.token_difference" not in said(made, run)["metrics"]


def test_seeds_are_pooled_by_task(tmp_path):
    _, made = found()
    results = []
    for seed, solved_by in ((1, (True, False)), (2, (True, True))):
        rows = [{**row, "success": ok} for row, ok in zip(made["programs"], solved_by, strict=True)]
        folder = tmp_path / str(seed)
        folder.mkdir()
        (folder / FILE).write_text(json.dumps({**made, "programs": rows}))
        totals = {**made["totals"], "why_not": {} if seed == 2 else made["totals"]["why_not"]}
        results.append(SimpleNamespace(folder=folder, summary={"agents": totals}))
    both = pooled(results)
    assert (both["success"]["x"], both["success"]["n"], both["success"]["tasks"]) == (3, 4, 2)
    assert both["success"]["value"] == 0.75
    assert both["success"]["low"] == pytest.approx(wilson(1.5, 2).low)
    assert "why_not" not in both
    assert both["agent"] == "react"


def test_the_page_says_it():
    run, made = found()
    summary = said(made, run)
    agents = {**summary["agents"], "cost": priced(summary["agents"]["cost"], 3600.0)}
    text = dict(lines({**summary, "agents": agents}))
    assert text["agents"] == "react on repair; replies scripted, the engine's work real; x 1.0"
    assert text["solved"].startswith("1 of 2 (50.0%), 95 % by Wilson [9.5%, 90.5%]; 1 x 600 s are over")
    assert text["tokens"] == "engines decoded 12, scripts say 12 (difference 0) in 3 calls"
    assert "LLM 50.0%, tools 25.0%, the rest 25.0%" in text["time of programs"]
    assert text["tools' sandboxes"] == (
        "1 of bwrap: init mean 500 ms (1), exec -, teardown mean 250 ms (1), disk 2 MB; nothing left behind"
    )
    assert text["cost"].startswith("1.50 engine-seconds per program, 3 per solved one (busy time of")
    assert "at 3,600 an hour: 1.50 per program, 3 per solved one" in text["cost"]
    assert lines({"metrics": {}}) == []


def test_a_comparison_names_what_one_side_alone_solved():
    side = {"x": 1, "n": 2, "value": 0.5, "low": 0.1, "high": 0.9}
    pairs = {"pairs": 2, "base_only": [[1, "task-0"]], "new_only": [], "p": 1.0, "alone": 0, "tasks": 2,
             "method": "exact McNemar"}  # fmt: skip
    told = solved({"outcomes": {"base": side, "new": {**side, "x": 0, "value": 0.0}, "mcnemar": pairs}})
    assert told[0].startswith("solved: BASE 1 of 2 (50.0%)")
    assert (
        told[1] == "2 pairs: 1 solved by BASE only (task-0 (seed 1)); 0 solved by NEW only; exact McNemar p 1"
    )
    same = {**pairs, "base_only": []}
    assert "the same outcome in all" in solved({"outcomes": {"base": side, "new": side, "mcnemar": same}})[1]
    assert "no McNemar" in solved({"outcomes": {"base": side, "new": side, "mcnemar": None}})[1]
    assert solved({}) == []


@pytest.mark.parametrize("price", [None, 2.0])
def test_money_needs_a_price(price):
    _, made = found()
    assert ("price" in priced(made["totals"]["cost"], price)) == (price is not None)

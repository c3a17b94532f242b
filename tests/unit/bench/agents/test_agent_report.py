"""The section of a report: from cells by hand to text in tables."""

import json
from dataclasses import replace

from bench.agents.pairs import FILE
from bench.agents.report import frame, sections
from bench.gather import Cell, Labels
from bench.stats import Estimate
from reports.figure import figures
from tests.unit.bench.agents.runs import sandbox


def cell(folder, system, seed, solved, latency, kind="bwrap"):
    """Two programs; the first ``solved`` of them are."""
    folder.mkdir()
    x, n = solved, 2
    totals = {
        "agent": "react", "suite": "repair", "sandbox": kind, "success": {"x": x, "n": n},
        "shares": {"llm": 0.5, "tool": 0.25, "rest": 0.25}, "cost": {"busy_s": 6.0},
        "environment": {"leaks": []},
    }  # fmt: skip
    rows = [
        {"task": f"t{i}", "success": i < solved, "outcome": "finished", "latency_s": latency}
        for i in range(n)
    ]
    events = [sandbox(0, 0.0, "init", 0.25), sandbox(0, 1.0, "teardown", 0.5, disk=3_000_000)]
    kept = {"programs": rows, "totals": totals, "sandboxes": events if kind else []}
    (folder / FILE).write_text(json.dumps(kept))
    summary = {
        "workload": "agents:react", "system": system, "seed": seed, "agents": totals,
        "metrics": {"program.response.mean": Estimate(latency)._asdict()},
    }  # fmt: skip
    return Cell(folder, summary, {})


def test_systems_beside_each_other_and_their_sandboxes(tmp_path):
    cells = [
        cell(tmp_path / f"{system}{seed}", system, seed, solved, latency)
        for seed in (1, 2)
        for system, solved, latency in (("vllm-opt", 2, 4.0), ("atlas", seed - 1, 2.0))
    ]
    (made,) = sections(cells)
    outcomes, costs, left = made.tables
    by_system = {row[2]: row for row in outcomes.rows}
    assert by_system["vllm-opt"][3:5] == ["2", "4 of 4 (100.0%), 95 % by Wilson [51.0%, 100.0%]"]
    assert by_system["atlas"][4].startswith("1 of 4 (25.0%)")
    assert by_system["atlas"][9:] == ["3", "12"]  # 12 engine-seconds, 4 programs, 1 solved
    assert by_system["vllm-opt"][6:9] == ["50.0%", "25.0%", "25.0%"]
    assert costs.rows[0][:4] == ["bwrap", "init", "4", "0"]
    assert costs.rows[0][4] == "250"
    assert list(left.rows[0]) == ["bwrap", "4", "3", "3", "0", "0", "0"]
    assert "agents:react in bwrap, BASE atlas, NEW vllm-opt" in made.text
    assert "3 solved by NEW only" in made.text
    assert "pair by pair: 2.000" in made.text


def test_seeds_that_one_side_lacks_are_no_pairs(tmp_path):
    cells = [cell(tmp_path / "a", "atlas", 1, 2, 1.0, ""), cell(tmp_path / "b", "vllm-opt", 2, 2, 1.0, "")]
    (made,) = sections(cells)
    assert len(made.tables) == 1  # no sandboxes
    assert "0 pairs" in made.text
    assert "4 programs have no partner" in made.text


def test_without_agents_there_is_no_section(tmp_path):
    one = cell(tmp_path / "a", "atlas", 1, 2, 1.0)
    plain = {name: value for name, value in one.summary.items() if name != "agents"}
    assert sections([replace(one, summary=plain)]) == []


def test_the_frame_has_a_row_per_system_with_seeds_together(tmp_path):
    cells = [cell(tmp_path / f"a{seed}", "atlas", seed, seed - 1, 2.0 * seed) for seed in (1, 2)]
    manifest = {
        "identity": {"arrivals": {"concurrency": 2}, "n": 2},
        "model": "tiny",
        "gpu": "cpu",
        "command": "",
        "workload": {"parameters": {}},
    }
    cells = [replace(one, manifest=manifest) for one in cells]
    made = frame(cells, Labels.of(cells))
    (row,) = made.to_dict("records")
    assert row["workload"] == "agents:react in bwrap"
    assert (row["solved"], row["programs"], row["seeds"], row["latency"]) == (25.0, 4, 2, 3.0)
    assert row["solved_low"] < 25.0 < row["solved_high"]
    table = figures()["agents"].table({"agents": made})
    assert len(table) == 1
    assert frame([], Labels.of([])).empty

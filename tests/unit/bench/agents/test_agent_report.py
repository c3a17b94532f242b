"""The section of a report: from cells by hand to text in tables."""

import json
from dataclasses import replace

import pytest

from bench.agents.pairs import FILE
from bench.agents.report import frame, sections
from bench.gather import Cell, Labels
from bench.stats import Estimate
from reports.figure import figures
from tests.unit.bench.agents.runs import sandbox

TWO_OF_TWO = "4 of 4 runs of 2 tasks (100.0% of tasks), 95 % by Wilson over tasks [34.2%, 100.0%]"


def cell(folder, system, seed, solved, latency, kind="bwrap", n=2, llm="model", words="", **identity):
    """``n`` programs; the first ``solved`` of them are. ``identity``: other parts of that."""
    folder.mkdir()
    totals = {
        "agent": "react", "suite": "repair", "sandbox": kind, "success": {"x": solved, "n": n}, "llm": llm,
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
        "workload": "agents:react", "system": system, "seed": seed, "agents": totals, "badge": "MEASURED x",
        "metrics": {"program.response.mean": Estimate(latency)._asdict()},
    }  # fmt: skip
    known = {
        "workload": f"react {llm}", "programs": f"p{seed}", "n": n, "seed": seed, "system": system,
        "arrivals": {"concurrency": 2}, "engine": "vllm", "latency": "cpu", "transfer": None,
        "engine_config": {}, "replicas": 1, "sandbox": kind,
    }  # fmt: skip
    manifest = {
        "identity": known | identity, "model": "tiny", "gpu": "cpu", "command": words,
        "system": {"scheduler": system}, "workload": {"parameters": {"llm": llm}},
    }  # fmt: skip
    return Cell(folder, summary, manifest)


def test_systems_beside_each_other_and_their_sandboxes(tmp_path):
    cells = [
        cell(tmp_path / f"{system}{seed}", system, seed, solved, latency)
        for seed in (1, 2)
        for system, solved, latency in (("vllm-opt", 2, 4.0), ("atlas", seed - 1, 2.0))
    ]
    (made,) = sections(cells)
    outcomes, costs, left = made.tables
    by_system = {row[2]: row for row in outcomes.rows}
    assert by_system["vllm-opt"][3:5] == ["2", TWO_OF_TWO]
    assert by_system["atlas"][4].startswith("1 of 4 runs of 2 tasks (25.0% of tasks)")
    assert by_system["atlas"][9:] == ["3", "12"]  # 12 engine-seconds, 4 programs, 1 solved
    assert by_system["vllm-opt"][6:9] == ["50.0%", "25.0%", "25.0%"]
    assert costs.rows[0][:4] == ["bwrap", "init", "4", "0"]
    assert costs.rows[0][4] == "250"
    assert list(left.rows[0]) == ["bwrap", "4", "3", "3", "0", "0", "0"]
    assert "agents:react in bwrap on tiny, 2 at all times, BASE atlas, NEW vllm-opt" in made.text
    assert "3 solved by NEW only" in made.text
    assert "pair by pair: 2.000" in made.text


def test_seeds_that_one_side_lacks_are_no_pairs(tmp_path):
    cells = [cell(tmp_path / "a", "atlas", 1, 2, 1.0, ""), cell(tmp_path / "b", "vllm-opt", 2, 2, 1.0, "")]
    (made,) = sections(cells)
    assert len(made.tables) == 1  # no sandboxes
    assert "0 pairs" in made.text
    assert "4 programs have no partner" in made.text


def two_seeds_of_the_same(tmp_path, **changed):
    """BASE atlas and NEW vllm-opt on 24 tasks, of which NEW loses three, always the same; NEW ``changed``."""
    return [
        cell(tmp_path / f"{system}{seed}", system, seed, solved, 2.0, "", 24, **more)
        for seed in (1, 2)
        for system, solved, more in (("atlas", 24, {}), ("vllm-opt", 21, changed))
    ]


def test_repeats_of_a_task_under_other_seeds_are_one_observation(tmp_path):
    (made,) = sections(two_seeds_of_the_same(tmp_path))
    assert "48 pairs of 24 tasks" in made.text
    assert "tasks: 3 to BASE, 0 to NEW; exact McNemar over tasks p 0.25" in made.text
    assert "42 of 48 runs of 24 tasks (87.5% of tasks), 95 % by Wilson over tasks [69.0%" in made.text


def test_scripts_have_no_p(tmp_path):
    cells = two_seeds_of_the_same(tmp_path, llm="scripted")
    (mixed,) = sections(cells)
    assert "BASE" not in mixed.text  # a script against a model is no pair
    for folder in tmp_path.iterdir():
        (folder / FILE).unlink()
        folder.rmdir()
    cells = [
        cell(tmp_path / f"{system}{seed}", system, seed, 24, 2.0, "", 24, "scripted")
        for seed in (1, 2)
        for system in ("atlas", "vllm-opt")
    ]
    (made,) = sections(cells)
    assert "the same outcome in all; scripted: the same by construction unless a call breaks" in made.text
    assert " p " not in made.text


@pytest.mark.parametrize(
    "changed",
    [
        {"arrivals": {"concurrency": 1}},
        {"n": 5},
        {"llm": "scripted"},
        {"engine": "other"},
        {"words": "bench run -p calls=9", "workload": "react 9 calls"},
    ],
)
def test_what_compare_would_refuse_is_another_group_and_no_pair(tmp_path, changed):
    size = changed.get("n", 2)
    cells = [
        cell(tmp_path / "a", "atlas", 1, 2, 10.0),
        cell(tmp_path / "b", "atlas", 1, 0, 2.0, n=size, **{k: v for k, v in changed.items() if k != "n"}),
        cell(tmp_path / "c", "vllm-opt", 1, 2, 11.0),
    ]
    (made,) = sections(cells)
    rows = made.tables[0].rows
    assert len({(row[0], row[2]) for row in rows}) == len(rows) == 3
    assert sorted(row[4].partition(" (")[0] for row in rows) == sorted(["2 of 2", f"0 of {size}", "2 of 2"])
    assert made.text.count(", BASE ") == 1
    assert "pair by pair: 1.100" in made.text
    made = frame(cells, Labels.of(cells))
    assert len(made) == len(made[["workload", "model", "load", "system"]].drop_duplicates()) == 3


def test_other_programs_of_a_seed_stand_apart(tmp_path):
    cells = [
        cell(tmp_path / "a", "atlas", 1, 2, 10.0),
        cell(tmp_path / "b", "atlas", 1, 1, 2.0, programs="others"),
        cell(tmp_path / "c", "vllm-opt", 1, 2, 20.0),
    ]
    (made,) = sections(cells)
    assert len({row[0] for row in made.tables[0].rows if row[2] == "atlas"}) == 2
    assert "pair by pair: 1.000" not in made.text


def test_without_agents_there_is_no_section(tmp_path):
    one = cell(tmp_path / "a", "atlas", 1, 2, 1.0)
    plain = {name: value for name, value in one.summary.items() if name != "agents"}
    assert sections([replace(one, summary=plain)]) == []


def test_the_frame_has_a_row_per_system_with_seeds_together(tmp_path):
    cells = [cell(tmp_path / f"a{seed}", "atlas", seed, seed - 1, 2.0 * seed) for seed in (1, 2)]
    made = frame(cells, Labels.of(cells))
    (row,) = made.to_dict("records")
    assert row["workload"] == "agents:react in bwrap"
    assert (row["solved"], row["programs"], row["seeds"], row["latency"]) == (25.0, 4, 2, 3.0)
    assert row["solved_low"] < 25.0 < row["solved_high"]
    table = figures()["agents"].table({"agents": made})
    assert len(table) == 1
    assert frame([], Labels.of([])).empty

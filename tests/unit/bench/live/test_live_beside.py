"""Measured cells with predictions beside them: what is pooled, and what a prediction was made of."""

import json
from dataclasses import replace

import pytest

from bench.errors import InvalidRun
from bench.live import beside
from bench.live import plan as plans
from bench.live.beside import LiveCell, Pair, table
from bench.live.cells import run_live, sweep_live
from bench.live.plan import live_plan
from bench.live.predict import Numbers
from bench.run import RunResult
from tests.unit.bench.live.conftest import SERVED


@pytest.fixture
def swept(stage, config):
    """Two seeds under fcfs, each of which tells the other's step times."""
    found = sweep_live([config(seed=seed, n=24) for seed in (1, 2)], stage.said.append, pool=stage.pool)
    assert found.done == 2
    return found


def predicted(swept):
    return [json.loads((one.folder / "predicted.json").read_text()) for one in swept.outcomes]


def test_a_prediction_is_made_again_when_a_source_or_the_predictor_changes(swept, monkeypatch):
    swept.beside(lambda _: None)
    before = predicted(swept)
    assert before[0]["shared_programs"] == 0.0  # another seed has other programs
    path = swept.outcomes[0].folder / "steps.json"
    steps = json.loads(path.read_text())
    for row in steps["engines"][0]["rows"]:
        row[2] *= 10.0
    path.write_text(json.dumps(steps))
    swept.beside(lambda _: None)
    after = predicted(swept)
    assert after[0] == before[0]
    assert after[1]["steps"] != before[1]["steps"]
    assert after[1]["numbers"]["response_mean"] > before[1]["numbers"]["response_mean"]
    monkeypatch.setattr(beside, "predictor_code", lambda: "another")
    swept.beside(lambda _: None)
    assert [one["predictor"] for one in predicted(swept)] == ["another"] * 2


def test_a_cell_without_a_prediction_keeps_its_measured_numbers(swept):
    path = swept.outcomes[0].folder / "steps.json"
    text = path.read_text()
    few = json.loads(text)
    few["engines"][0]["rows"] = few["engines"][0]["rows"][:10]
    for damaged, says in [
        (None, "steps.json"),
        (text[:100], "steps.json"),
        (json.dumps(few), "too few to fit"),
    ]:
        path.unlink() if damaged is None else path.write_text(damaged)
        (row,), (note,) = swept.beside(lambda _: None)
        assert row["seeds"] == [1, 2]
        assert row["measured"]["response_mean"]["value"] > 0
        assert note.startswith("vllm-opt on chatbot, seed 2 (")
        assert says in note


def test_a_program_that_raises_when_it_is_simulated_is_a_note(swept):
    async def bad(s):
        raise KeyError("lost")

    programs = swept.plans[1].programs
    programs.programs = [replace(spec, start=bad) for spec in programs.programs]
    (row,), (note,) = swept.beside(lambda _: None)
    assert row["seeds"] == [1, 2]
    assert "seed 2" in note
    assert "raised KeyError: 'lost'" in note


def test_recorded_programs_are_those_of_every_seed(stage, config, tmp_path):
    recorded = tmp_path / "recorded.jsonl"
    recorded.write_text(TRACE)
    asked = [config(workload=str(recorded), parameters={}, seed=seed, n=24) for seed in (1, 2)]
    swept = run_live(asked, stage.said.append, pool=stage.pool)
    rows, notes = swept.beside(lambda _: None)
    assert notes == []
    assert [one["shared_programs"] for one in predicted(swept)] == [1.0, 1.0]
    assert rows[0]["shared_programs"] == 1.0


TRACE = "".join(
    json.dumps({"timestamp": 10 * i, "input_length": 40 + i, "output_length": 60, "hash_ids": [i]}) + "\n"
    for i in range(24)
)
"""In the format of Mooncake's traces."""


# What is one row


def pair(config, name, mean=1.0):
    summary = {"workload": "chatbot", "load": "6 programs", "badge": "MEASURED"}
    plan = live_plan(config)
    numbers = Numbers(mean, 2.0, 60.0, 0.5, 0.0, 0.1, 0.0)
    return Pair(LiveCell(plan, RunResult(summary, config.out / name, False), None), numbers, None)


def test_settings_that_differ_are_not_pooled(stage, config, tmp_path):
    given = [
        config(system="mlfq", knobs={"live.front": "none", "scheduler.bounds": b}) for b in ("3,9", "5,15")
    ]
    rows = table([pair(one, str(i)) for i, one in enumerate(given)])
    assert [row["seeds"] for row in rows] == [[1], [1]]
    assert ["scheduler.bounds=3,9" in row["setting"] for row in rows] == [True, False]
    (tmp_path / "model").mkdir()
    rows = table([pair(config(), "a"), pair(config(model=str(tmp_path / "model"), seed=2), "b")])
    assert [row["seeds"] for row in rows] == [[1], [2]]
    assert "model=tiny-llama" in rows[0]["setting"]


def test_constants_that_follow_from_the_workload_are_no_setting(stage, config):
    rows = table(
        [pair(config(), "a"), pair(config(system="mlfq"), "b"), pair(config(system="mlfq", seed=2), "c")]
    )
    assert [(row["system"], row["seeds"]) for row in rows] == [("vllm-opt", [1]), ("mlfq", [1, 2])]
    assert "bounds" not in rows[1]["setting"]


def test_a_seed_counts_once(stage, config, monkeypatch):
    first = pair(config(), "a")
    (row,) = table([first, first])
    assert row["seeds"] == [1]
    monkeypatch.setattr(plans, "served", lambda config, options: replace(SERVED, machine="another CPU"))
    with pytest.raises(InvalidRun, match="a and b both have seed 1"):
        table([first, pair(config(), "b")])

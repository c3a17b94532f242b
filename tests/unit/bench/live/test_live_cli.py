"""``bench run`` and ``bench sweep`` with --engine vllm, on engines that are none."""

import json

import pytest
from typer.testing import CliRunner

from bench.cli.main import app
from bench.live import cells

SMALL = ["--engine", "vllm", "--system", "vllm-opt", "--workload", "chatbot", "-p", "token_scale=1/64"]
NONE = ["--knob", "live.front=none"]


def invoke(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


@pytest.fixture(autouse=True)
def live(stage, monkeypatch):
    monkeypatch.setattr(cells, "_pool", lambda config, say: stage.pool())


def test_a_run_prints_measured_numbers_and_the_prediction(tmp_path):
    got = invoke("run", *SMALL, *NONE, "--n", 24, "--rate", 60, "--out", tmp_path)
    assert got.exit_code == 0, got.output
    for word in ("MEASURED", "wait / exec", "predicted", "client", "results", "repeat"):
        assert word in got.output
    assert "--gpu" not in got.output
    assert "sensitivity" not in got.output
    (folder,) = (path.parent for path in tmp_path.glob("*/summary.json"))
    shown = invoke("show", folder.name, "--out", tmp_path)
    assert "MEASURED" in shown.output


def test_several_seeds_are_pooled(tmp_path):
    got = invoke("run", *SMALL, *NONE, "--n", 6, "--rate", 60, "--seeds", 2, "--out", tmp_path, "--json")
    assert got.exit_code == 0, got.output
    found = json.loads(got.stdout)
    assert found["seeds"] == [1, 2]
    assert found["metrics"]["client.ttft.mean"]["method"] == "t over seeds"
    assert len(found["beside"]) == 1


def test_a_sweep_prints_one_table_a_workload(tmp_path):
    words = ["--system", "mlfq", "--n", "chatbot=24", "--rate", 60, "--out", tmp_path]
    got = invoke("sweep", *SMALL, *NONE, *words)
    assert got.exit_code == 0, got.output
    assert got.output.count("MEASURED") == 1
    assert "latency / vllm-opt" in got.output
    assert "--n chatbot=24" in got.output
    again = invoke("sweep", *SMALL, *NONE, *words, "--json")
    found = json.loads(again.stdout)
    assert [row["system"] for row in found["beside"]] == ["vllm-opt", "mlfq"]
    assert found["failures"] == []


def test_a_dry_run_starts_nothing(tmp_path, stage):
    got = invoke("sweep", *SMALL, *NONE, "--n", 6, "--out", tmp_path, "--dry-run")
    assert got.exit_code == 0, got.output
    assert "the rate is a pilot's to tell" in got.output
    got = invoke("run", *SMALL, *NONE, "--n", 6, "--rate", 2, "--out", tmp_path, "--dry-run", "--json")
    assert json.loads(got.stdout)["cells"][0]["load"] == "6 programs, Poisson 2/s"
    assert stage.engines == []


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["run", *SMALL, "--gpu", "a100"], 2, "leave it out"),
        (["run", *SMALL, "--concurrency", 4, "--knob", "live.driver=locust"], 2, "give --rate"),
        (["run", *SMALL, "--knob", "live.how=ship"], 2, "unknown live.how"),
        (["sweep", *SMALL, "--workers", 4], 2, "one at a time"),
        (["sweep", *SMALL, "--n", "mcts=0"], 2, "--n takes"),
        (["run", *SMALL, "--model", "llama-3.1-8b"], 6, "no GPU here"),
    ],
)
def test_bad_input_is_one_line_and_a_code(words, code, says, tmp_path):
    got = invoke(*words, "--out", tmp_path)
    assert got.exit_code == code, got.output
    assert says in got.output
    assert "Traceback" not in got.output
    assert len(got.output.splitlines()) == 1

"""``bench calibrate`` from the command line: known step times are recovered, and mistakes are named."""

import json
from dataclasses import replace
from random import Random

import pytest
from typer.testing import CliRunner

from bench.cli.main import app
from systems.latency import Calibration
from tests.unit.bench.calibration.recorded import served, write_jsonl


def invoke(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


@pytest.fixture
def recording(tmp_path):
    return write_jsonl(tmp_path / "r.jsonl", served(1.2, 1.5, n=24))


MODEL = ("--model", "llama-3.1-8b", "--gpu", "a100", "--knob", "engine.kv_blocks=3000")


def test_a_fit_is_printed_written_and_usable(recording, tmp_path):
    out = tmp_path / "mine.json"
    done = invoke("calibrate", recording, *MODEL, "--out", out)
    assert done.exit_code == 0, done.output
    assert "SIMULATED replay" in done.output
    assert "held out (after the first 50% by arrival)" in done.output
    made = json.loads(out.read_text())
    assert made["source"]["command"].endswith(
        "calibrate r.jsonl --model llama-3.1-8b --gpu a100 --fit 0.5 --knob engine.kv_blocks=3000"
    )
    ran = invoke(
        "run", "--system", "vllm-opt", "--workload", "chatbot", "--n", 3, "--rate", 1, "--gpu", "a100",
        "--knob", f"latency.calibration={out}", "--out", tmp_path / "results",
    )  # fmt: skip
    assert ran.exit_code == 0, ran.output
    assert "calibration llama-3.1-8b-a100" in " ".join(ran.output.split())


def test_a_run_of_ours_gives_back_its_step_times(tmp_path):
    rnd, known, trace = Random(3), tmp_path / "known.json", tmp_path / "azure.csv"
    known.write_text(Calibration("known", "scaled", "llama-3.1-8b", "a100", 1.2, 1.5).as_json())
    rows = [
        f"2024-05-10 00:00:{i:02}.{rnd.randrange(9)},{rnd.randint(50, 6000)},{rnd.randint(2, 300)}"
        for i in range(40)
    ]
    trace.write_text("\n".join(["TIMESTAMP,ContextTokens,GeneratedTokens", *rows, ""]))
    ran = invoke(
        "run", "--system", "vllm-opt", "--workload", trace, "--gpu", "a100", "--out", tmp_path / "results",
        "--knob", f"latency.calibration={known}", "--json",
    )  # fmt: skip
    assert ran.exit_code == 0, ran.output
    done = invoke("calibrate", json.loads(ran.stdout)["results"], "--json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found["fit"]["scale"] == pytest.approx(1.2, rel=0.05)
    assert found["fit"]["extra_ms"] == pytest.approx(1.5, abs=1.0)
    assert {e["metric"]: e["n"] for e in found["calibrated"]} == {"TTFT": 20, "TPOT": 20, "E2E": 20}


def test_a_fit_that_does_harm_is_warned_of(recording, monkeypatch):
    """One whose held-out errors, with and without it, have changed places."""
    from bench.calibration import calibrate as module

    def swapped(*arguments):
        found = real(*arguments)
        return replace(found, raw=found.held, held=found.raw)

    real = module.calibrate
    told = "warning: on the held-out rows the fit is worse than none"
    assert told not in invoke("calibrate", recording, *MODEL).stderr
    monkeypatch.setattr(module, "calibrate", swapped)
    for words in ((), ("--json",)):
        done = invoke("calibrate", recording, *MODEL, *words)
        assert (done.exit_code, told in done.stderr) == (0, True), done.output
    assert json.loads(done.stdout)["worse_than_no_fit"] == ["TTFT", "TPOT", "E2E"]


def test_ctrl_c_says_that_nothing_is_kept(recording, monkeypatch):
    from bench.calibration import calibrate as module

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "calibrate", interrupted)
    done = invoke("calibrate", recording, *MODEL)
    assert (done.exit_code, done.stderr) == (130, "interrupted; the same command starts over\n")


def test_dry_run_fits_nothing(recording):
    done = invoke("calibrate", recording, *MODEL, "--dry-run", "--json", "--fit", 0.25)
    assert json.loads(done.stdout)["fitted_and_held_out"] == [[6, 18]]


@pytest.mark.parametrize(
    ("more", "code", "message"),
    [
        (["--fit", 1.0], 2, "--fit takes a share between 0 and 1"),
        (["--fit", 0.1], 4, "2 rows to fit on and 22 held out; at least 8"),
        (["--format", "call-logs"], 2, "did you mean call-log"),
        (["--knob", "engine.kv_block=1"], 2, "did you mean engine.kv_blocks"),
        (["--knob", "latency.decode=1.1"], 2, "unknown knob"),
        (["--model", "llama-9"], 2, "unknown model"),
    ],
)
def test_mistakes_are_named(recording, more, code, message):
    done = invoke("calibrate", recording, *MODEL, *more)
    assert (done.exit_code, message in done.output) == (code, True), done.output


def test_a_recording_that_says_nothing_of_its_engine(recording):
    done = invoke("calibrate", recording)
    assert (done.exit_code, "does not say its model: give --model" in done.output) == (2, True)


def test_a_file_is_not_replaced_unless_asked(recording, tmp_path):
    out = tmp_path / "there.json"
    out.write_text("mine")
    done = invoke("calibrate", recording, *MODEL, "--out", out)
    assert (done.exit_code, "--force replaces it" in done.output, out.read_text()) == (2, True, "mine")


@pytest.fixture
def steps(tmp_path):
    """A log of 120 steps of 2 ms and 0.1 ms per token."""
    rnd, now = Random(5), 0.0
    lines = [{"origin_wall": None, "kv_blocks": 100, "block_size": 16, "max_model_len": 2048}]
    for i in range(120):
        tokens = rnd.randint(1, 200)
        end = now + (2.0 + 0.1 * tokens) / 1e3
        call = [f"r{i}", 0, tokens, 1]
        lines.append({"start": now, "end": end, "running": 1, "waiting": 0, "calls": [call], "preempted": []})
        now = end + 1.0
    path = tmp_path / "steps.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_a_step_log_is_fitted_without_a_replay(steps, tmp_path):
    out = tmp_path / "steps.json"
    done = invoke("calibrate", steps, "--model", "tiny", "--gpu", "cpu", "--out", out)
    assert done.exit_code == 0, done.output
    made = json.loads(out.read_text())
    assert (made["kind"], made["model"], made["gpu"]) == ("linear", "tiny", "cpu")
    assert made["held_out"][0]["error"] < 0.02
    dry = invoke("calibrate", steps, "--model", "tiny", "--gpu", "cpu", "--dry-run")
    assert "a log of 120 engine steps; would fit on the first 60" in dry.output


def test_a_step_log_needs_names(steps):
    done = invoke("calibrate", steps)
    assert (done.exit_code, "give --model and --gpu" in done.output) == (2, True)

from dataclasses import replace

import pytest

from bench import card as module
from bench.card import card, of_schedule, raw
from bench.config import RunConfig
from bench.errors import UsageError
from bench.plan import plan
from bench.repeat import config_of
from reports.card import short
from systems.latency import validation
from systems.latency.calibration import Calibration, HeldOut
from systems.latency.validation import Validation

ERROR = HeldOut("TPOT", "mean", 0.043, 90, "fold 2")

NOTHING = {"source": "none", "rows": [], "short": []}


def made(tmp_path, **words):
    config = RunConfig(**({"system": "mlfq", "workload": "chatbot", "n": 3, "out": tmp_path} | words))
    one = plan(config)
    return {**one.details(), "identity": one.identity}


def test_a_measured_table_and_no_calibration(tmp_path):
    got = card(made(tmp_path, replicas=2))
    assert got["engine"]["name"] == "sim"
    assert (got["engine"]["replicas"], got["engine"]["kv_blocks"]) == (2, 27062)
    assert (got["model"], got["gpu"]) == ("llama-3.1-8b", "a100")
    assert got["table"]["kind"] == "measured kernels"
    assert got["table"]["package"] == "aiconfigurator-core"
    assert 5 < got["table"]["smallest_step_ms"] < 20
    assert got["calibration"] is None
    assert got["band"] == [0.85, 1.15]
    assert got["varied"] == {}
    assert got["fallbacks"] == []


def test_a_roofline_has_its_own_band(tmp_path):
    got = card(made(tmp_path, system="vllm-opt", model="falcon-180b"))
    assert got["table"]["kind"] == "roofline, no kernel measured"
    assert got["band"][0] < 0.85 < 1.15 < got["band"][1]


def test_what_the_run_itself_varies_is_said(tmp_path):
    got = card(made(tmp_path, knobs={"latency.prefill": "1.15", "engine.swap_scale": "2"}))
    assert got["varied"] == {"prefill": 1.15, "PCIe": 2.0}


def calibrated(tmp_path, **changes):
    fit = Calibration(
        "mine", "scaled", "llama-3.1-8b", "a100", 1.04, 0.6,
        **({"held_out": (ERROR,), "source": {"file": "run.csv", "rows": 120}} | changes),
    )  # fmt: skip
    path = tmp_path / "mine.json"
    path.write_text(fit.as_json())
    return made(tmp_path, knobs={"latency.calibration": str(path)})


def test_a_calibration_brings_its_numbers_and_held_out_errors(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "validations", lambda *_: pytest.fail("the fit's own errors count"))
    got = card(calibrated(tmp_path))
    fit = got["calibration"]
    assert (fit["name"], fit["scale"], fit["extra_ms"]) == ("mine", 1.04, 0.6)
    assert fit["fitted_on"] == {"file": "run.csv", "rows": 120}
    assert got["error"] == {"source": "calibration", "rows": [str(ERROR)], "short": [str(ERROR)]}
    assert got["band"] == pytest.approx([0.85, 1.15])


def test_a_calibration_without_held_out_errors_has_none(tmp_path):
    assert card(calibrated(tmp_path, held_out=()))["error"] == NOTHING


def test_without_a_calibration_validations_of_model_and_gpu_count(tmp_path, monkeypatch):
    row = Validation("llama-3.1-70b", "a100", "TPOT", "mean", 0.08, 40, "nothing", "silicon")
    fitted = replace(row, error=0.02, fitted="scale and ms per step, held out")
    monkeypatch.setattr(validation, "every", lambda: (fitted, row))
    assert card(made(tmp_path))["error"] == NOTHING
    for spelling in ("llama-3.1-70b", "llama-3.1-70b:tp4"):
        assert raw(spelling, "a100") == [row]
    assert raw("llama-3.1-70b:tp8", "a100") == []
    assert raw("a model of somebody's", "a100") == []
    got = card(made(tmp_path, model="llama-3.1-70b"))
    assert got["error"]["rows"] == [str(row)]
    assert got["error"]["short"] == ["TPOT 8.0% mean (n=40, fitted: nothing)"]


def test_errors_of_fitted_numbers_are_not_those_of_an_unfitted_run(tmp_path):
    rows = card(made(tmp_path, model="llama-3.1-70b-fp8", gpu="h100"))["error"]["rows"]
    assert all(row.endswith("(fitted: nothing)") for row in rows)


def test_fallbacks_are_named_and_older_manifests_have_them_in_the_badge(tmp_path):
    now = made(tmp_path, engine="vllm-virtual")
    got = card(now)
    assert got["engine"]["kind"].startswith("vLLM's own scheduler")
    (fallback,) = got["fallbacks"]
    assert fallback.startswith("preemption swap -> recompute")
    before = {k: v for k, v in now.items() if k != "fallbacks"}
    before["latency_table"] = {k: now["latency_table"][k] for k in ("name", "provenance")}
    old = card(before)
    assert old["fallbacks"] == got["fallbacks"]
    assert old["band"] == [0.85, 1.15]
    assert old["table"]["smallest_step_ms"] is None


def test_an_empty_manifest_is_a_card_that_knows_nothing():
    got = card({"identity": {}})
    assert got["table"]["kind"] == "not recorded"
    assert got["band"] is None
    assert got["error"]["source"] == "none"


def test_the_card_of_an_example_says_that_steps_are_given():
    got = of_schedule({"step_s": 2.0})
    assert "2 s each" in got["engine"]["kind"]
    assert got["calibration"] is None


def test_a_measured_result_has_a_card_of_its_machine_and_nothing_to_vary(tmp_path):
    made = {
        "identity": {"engine": "vllm", "replicas": 2, "engine_config": {"kv_blocks": 256},
                     "live": {"engine": "vllm", "version": "0.32.0", "machine": "A CPU"}},
        "model": "tiny-llama", "gpu": "cpu", "command": "bench run --engine vllm",
    }  # fmt: skip
    found = card(made)
    assert found["engine"]["kind"].startswith("measured")
    assert found["table"]["kind"] == "real steps of vllm 0.32.0, A CPU"
    assert found["error"]["short"] == [
        "measured, nothing simulated; the client's own lateness is in the summary"
    ]
    labels = [label for label, _ in short(found, None, "bench card X", "none")]
    assert labels == ["card", "known error"]
    with pytest.raises(UsageError, match="was measured on real engines"):
        config_of(made, tmp_path)

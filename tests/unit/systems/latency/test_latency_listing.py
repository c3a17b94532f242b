"""The lists of models and GPUs: what is measured, what estimated, what validated against something real."""

import pytest

from systems.latency import Calibration, gpu_rows, latency_for, listing, model_rows, validation
from systems.latency.validation import Validation


def row_of(rows, name):
    (found,) = (row for row in rows if row["name"] == name)
    return found


@pytest.fixture
def known(monkeypatch):
    """Four validations and a calibration instead of the shipped ones."""

    def row(model, gpu, metric, error, n, fitted, statistic="mean"):
        return Validation(model, gpu, metric, statistic, error, n, fitted, "a real run")

    rows = (
        row("llama-3.1-8b", "a100", "E2E", 0.009, 300, "nothing"),
        row("llama-3.1-8b", "a100", "TTFT", 0.04, 300, "nothing", "median of errors"),
        row("llama-3.1-70b-fp8:tp4", "h100", "TPOT", 0.0731, 45, "scale and ms per step, held out"),
        row("tiny-cpu", "cpu", "TTFT", 0.04, 9, "nothing"),
    )
    monkeypatch.setattr(validation, "every", lambda: rows)
    monkeypatch.setattr(listing, "calibrations", lambda: ["of-70b"])
    fit = Calibration("of-70b", "scaled", "llama-3.1-70b-fp8:tp4", "h100", scale=1.1)
    monkeypatch.setattr(listing, "load_calibration", lambda name: fit)


@pytest.fixture
def nothing(monkeypatch):
    monkeypatch.setattr(validation, "every", tuple)
    monkeypatch.setattr(listing, "calibrations", list)


def test_a_model_nobody_measured_is_a_roofline_and_says_so(nothing):
    assert row_of(model_rows(), "falcon-180b") == {
        "name": "falcon-180b", "GPUs": "8", "measured kernels": "",
        "roofline": "a100, h100, h200 (x0.68..x1.46)", "validated": "roofline only",
    }  # fmt: skip


def test_what_does_not_fit_or_run_is_not_listed(nothing):
    assert row_of(model_rows(), "glm-4.6")["roofline"].partition(" ")[0] == "h200"
    assert row_of(model_rows(), "glm-4.6-fp8")["roofline"].startswith("h100, h200 (")
    assert not [row["name"] for row in gpu_rows() if row["name"] == "a100" and "fp8" in str(row)]


def test_kernels_alone_are_no_validation(nothing):
    assert row_of(model_rows(), "llama-3.1-70b:tp8")["validated"] == "kernels only, +-15 %"
    assert row_of(model_rows(), "qwen3-235b-fp8")["validated"] == "kernels only, x0.67..x1.70"
    said = {row["name"]: row["validated"] for row in gpu_rows()}
    assert said.pop("rtx5090") == "roofline only"
    assert set(said.values()) == {"kernels only"}


def test_validated_is_said_of_the_gpu_and_size_it_was_done_on(known):
    words = "TPOT 7.3% of 45 (scale and ms per step, held out); calibration of-70b"
    fp8 = row_of(model_rows(), "llama-3.1-70b-fp8")["validated"]
    assert fp8.startswith(f"h100: {words}; h200: kernels only, +-15 %")
    assert "TPOT" not in row_of(model_rows(), "llama-3.1-70b-fp8:tp8")["validated"]
    assert row_of(model_rows(), "llama-3.1-8b")["validated"].startswith(
        "a100: E2E 0.9%, TTFT 4.0% median of 300 (nothing fitted); "
    )
    assert row_of(gpu_rows(), "h100")["validated"] == f"llama-3.1-70b-fp8: {words}; the others: kernels only"


def test_raw_and_held_out_errors_are_said_apart(monkeypatch, known):
    raw, fitted = (
        Validation("llama-3.1-8b:tp1", "h100", "TPOT", "mean error", error, 13, words, "a real run")
        for error, words in ((0.15, "nothing"), (0.05, "two numbers, held out"))
    )
    monkeypatch.setattr(validation, "every", lambda: (raw, fitted))
    words = row_of(model_rows(), "llama-3.1-8b")["validated"]
    assert "h100: TPOT 15.0% of 13 (nothing fitted); TPOT 5.0% of 13 (two numbers, held out)" in words


def test_every_row_of_the_lists_can_be_served():
    for row in model_rows():
        gpus = [
            word for part in ("measured kernels", "roofline") for word in row[part].split(" (")[0].split(", ")
        ]
        for gpu in filter(None, gpus):
            served = latency_for(row["name"], gpu)
            assert (str(served.tp), served.gpu) == (row["GPUs"], gpu)


def test_sizes_of_a_model_stand_behind_it(nothing):
    assert "llama-3.1-70b-fp8 (also :tp1, :tp2, :tp8)" in row_of(gpu_rows(), "h200")["measured kernels"]

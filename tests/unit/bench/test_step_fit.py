"""Step logs: what a step is charged, whether a call prefills or decodes, and the fit."""

import json
from random import Random

import numpy as np
import pytest

from bench.calibration.steps import StepLog, fit_log, fit_rows, fit_steps, lost_time, read_steps, request_of
from systems.latency.calibration import TERMS, LinearLatency

HEAD = {"vllm": "0.32.0", "scheduler": "fcfs", "kv_blocks": 100, "block_size": 32, "max_model_len": 2048}
TRUE = {"step": 5.0, "token": 0.1, "row": 0.2, "context": 0.001, "pair": 0.0002}


def step(start, end, calls, preempted=()):
    return {"start": start, "end": end, "running": len(calls), "waiting": 0, "calls": calls,
            "preempted": list(preempted)}  # fmt: skip


def write(path, *lines):
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_a_busy_engine_is_charged_from_the_end_before_an_idle_one_from_its_start(tmp_path):
    log = read_steps(
        write(
            tmp_path / "s", HEAD,
            step(1.0, 1.5, [["a", 0, 40, 1]]),
            step(1.6, 2.0, [["a", 40, 1, 1]]),
            step(7.0, 7.25, [["b", 0, 8, 1]]),
        )
    )  # fmt: skip
    assert [row.seconds for row in log.rows] == [0.5, 0.5, 0.25]


def test_units_tell_prefills_chunks_and_recomputed_ones_from_decodes(tmp_path):
    log = read_steps(
        write(
            tmp_path / "s", HEAD,
            step(0.0, 1.0, [["a", 0, 30, 0]]),
            step(1.0, 2.0, [["a", 30, 10, 1], ["b", 16, 4, 1]]),
            step(2.0, 3.0, [["a", 40, 1, 1], ["b", 20, 1, 1]]),
            step(3.0, 4.0, [["b", 21, 1, 1]], ["a"]),
            step(4.0, 5.0, [["b", 22, 1, 1], ["a", 16, 26, 1]]),
            step(5.0, 6.0, [["a", 42, 1, 1]]),
        )
    )  # fmt: skip
    assert [row.units for row in log.rows] == [
        (1, 30, 1, 0, 465),
        (1, 14, 2, 0, 10 * 30 + 55 + 4 * 16 + 10),
        (1, 2, 2, 41 + 21, 0),
        (1, 1, 1, 22, 0),
        (1, 27, 2, 23, 26 * 16 + 351),
        (1, 1, 1, 43, 0),
    ]


def noisy_log(path, spoiled=0, seed=1, steps=600):
    """Steps of the true model, with 2 % of noise; ``spoiled`` of them took ten times as long."""
    rng, at, lines, truth = Random(seed), 0.0, [HEAD], LinearLatency("true", TRUE)
    known = set()
    bad = set(rng.sample(range(steps), spoiled))
    for i in range(steps):
        decoding = [[f"d{j}", 100 + i + 7 * j, 1, 1] for j in range(rng.randint(0, 16))]
        new = [[f"p{i}", 16 * rng.randint(0, 9), rng.randint(1, 400), 1]] if rng.random() < 0.4 else []
        if not decoding and not new:
            continue
        seen = [c for c in decoding if c[0] in known]
        known |= {c[0] for c in decoding}
        prefills = [(c[2], c[1]) for c in [*new, *(c for c in decoding if c not in seen)]]
        seconds = truth.step(prefills, len(seen), sum(c[1] + 1 for c in seen))
        seconds *= (1.0 + 0.02 * rng.gauss(0.0, 1.0)) * (10.0 if i in bad else 1.0)
        start = at + (0.0 if seen else 1.0)  # the engine was idle if all are new
        at = start + seconds
        lines.append(step(start, at, [*decoding, *new]))
    return write(path, *lines)


@pytest.mark.parametrize("spoiled", [0, 12])
def test_the_fit_finds_the_true_numbers_interrupted_steps_or_not(tmp_path, spoiled):
    log = read_steps(noisy_log(tmp_path / "s", spoiled))
    fit = fit_rows(log.rows)
    found = dict(zip(TERMS, 1e3 * fit.coefficients, strict=True))
    for term, value in TRUE.items():
        assert found[term] == pytest.approx(value, rel=0.08), term
    assert (~fit.kept).sum() == spoiled
    assert (lost_time(log, fit) > 0) == bool(spoiled)


def test_a_log_survives_as_json(tmp_path):
    log = read_steps(noisy_log(tmp_path / "steps.jsonl", steps=80))
    assert StepLog.parse(json.loads(json.dumps(log.as_json()))) == log


def test_no_coefficient_is_negative(tmp_path):
    rows = read_steps(noisy_log(tmp_path / "s")).rows
    falling = [row._replace(seconds=0.05 - 0.0001 * row.units[2]) for row in rows]
    assert (fit_rows(falling).coefficients >= 0).all()


def test_a_calibration_says_what_it_is_and_how_good_on_unseen_steps(tmp_path):
    path = noisy_log(tmp_path / "s")
    count = len(read_steps(path).rows)
    whole = fit_steps(path, name="n", model="tiny-llama", gpu="cpu")
    assert (whole.kind, whole.kv_blocks, whole.max_model_len) == ("linear", 200, 2048)
    assert whole.source["steps"] == count
    assert len(whole.source["sha256"]) == 64
    part = fit_steps(path, name="n", model="tiny-llama", gpu="cpu", part=slice(0, 400))
    assert {(h.metric, h.statistic, h.n) for h in part.held_out} == {
        ("step", "median", count - 400),
        ("step", "p90", count - 400),
        ("step", "error of means", count - 400),
    }
    for held in (*whole.held_out, *part.held_out):
        assert 0 < held.error < (0.15 if held.statistic == "p90" else 0.05)
    predicted = LinearLatency("fit", part.coefficients).step([(100, 0)], 4, 800)
    assert predicted == pytest.approx(LinearLatency("true", TRUE).step([(100, 0)], 4, 800), rel=0.03)


def test_one_run_of_a_log_with_several(tmp_path):
    log = read_steps(
        write(
            tmp_path / "s", HEAD,
            step(0.0, 1.0, [["cmpl-low0.1..0-0-ab", 0, 5, 1]]),
            step(1.0, 2.0, [["cmpl-low0.1..0-0-ab", 5, 1, 1], ["cmpl-low1.1..0-0-ab", 0, 5, 1]]),
        )
    )  # fmt: skip
    assert len(log.only(request_of("low0")).rows) == 1
    assert log.only(request_of("low")).rows == []


def test_a_scheduler_that_starts_again_goes_on_with_nothing(tmp_path):
    log = read_steps(
        write(
            tmp_path / "s", HEAD,
            step(5.0, 6.0, [["a", 0, 5, 1]]),
            HEAD,
            step(1.0, 1.5, [["a", 0, 5, 1]]),
        )
    )  # fmt: skip
    assert [row.seconds for row in log.rows] == [1.0, 0.5]
    assert [row.units[4] for row in log.rows] == [15, 15]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([], r"s:1: no first line"),
        ([{"a": 1}], r"s:1: .*kv_blocks is missing"),
        ([HEAD, {**HEAD, "kv_blocks": 7}], r"s:2: .*differ"),
        ([HEAD, {"calls": []}], r"s:2: no line of a step log"),
        ([HEAD, step(2.0, 1.0, [["a", 0, 5, 1]])], r"s:2: .*a step of -1"),
        ([HEAD, ["calls"]], r"s:2: no line"),
    ],
)
def test_what_is_no_step_log_is_refused_by_line(tmp_path, lines, message):
    with pytest.raises(ValueError, match=message):
        read_steps(write(tmp_path / "s", *lines))


def test_too_few_steps_and_nothing_left_to_judge_by(tmp_path):
    few = write(tmp_path / "s", HEAD, *(step(i, i + 0.5, [[f"c{i}", 0, 5, 1]]) for i in range(10)))
    with pytest.raises(ValueError, match="10 steps are too few"):
        fit_rows(read_steps(few).rows)
    many = noisy_log(tmp_path / "t")
    with pytest.raises(ValueError, match="none is left to judge by"):
        fit_steps(many, name="n", model="m", gpu="g", part=slice(None))
    with pytest.raises(ValueError, match="too few"):
        fit_log(read_steps(few), name="n", model="m", gpu="g", source={})


def test_times_on_a_line_have_units_in_their_column_order():
    assert TERMS == ("step", "token", "row", "context", "pair")
    assert np.isclose(LinearLatency("x", {"step": 1.0, "pair": 1.0}).step([(2, 3)], 0, 0), 0.001 * (1 + 9))

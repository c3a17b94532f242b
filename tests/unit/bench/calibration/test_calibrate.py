"""A recording under known step times gives these back; errors are of rows the fit has not seen."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bench.calibration.calibrate import calibrate, calibrations
from bench.calibration.recordings import Facts, Point, Points
from bench.calibration.subject import Loops, subject
from bench.errors import InvalidRun, UsageError
from systems.latency import ScaledLatency, latency_for, load_calibration
from tests.unit.bench.calibration.recorded import GPU, MODEL, as_subject, served


@pytest.mark.parametrize(("scale", "extra_ms"), [(1.2, 1.5), (0.85, 0.0), (1.0, 4.0)])
def test_known_step_times_are_recovered(scale, extra_ms):
    found = calibrate(as_subject(served(scale, extra_ms)), 0.5)
    assert found.final.scale == pytest.approx(scale, rel=0.03)
    assert found.final.extra_ms == pytest.approx(extra_ms, abs=0.6)
    raw, held = ({e.metric: abs(e.of_means.value) for e in rows} for rows in (found.raw, found.held))
    assert set(held) == {"TTFT", "TPOT", "E2E"}
    assert max(held.values()) < 0.02 < 0.05 < min(raw.values())
    assert {e.n for e in found.held} == {30}
    assert found.final.evaluations <= 37


def test_the_held_out_part_has_no_say():
    recording = served(1.2, 1.5)
    wrong = [r._replace(ttft=9 * r.ttft, tpot=9 * r.tpot, e2e=9 * r.e2e) for r in recording.requests[30:]]
    spoilt = type(recording)(recording.facts, [*recording.requests[:30], *wrong])
    one, other = (calibrate(as_subject(r), 0.5) for r in (recording, spoilt))
    assert one.final == other.final
    assert other.held[0].mean.value > 0.8


def test_twice_the_same():
    one, other = (calibrate(as_subject(served(1.1, 0.5, n=20)), 0.5) for _ in range(2))
    assert one.as_json() == other.as_json()


def test_where_the_fit_does_harm_is_told():
    found = calibrate(as_subject(served(1.2, 1.5, n=20)), 0.5)
    assert found.worse == []
    turned = replace(found, held=[*found.raw[:2], found.held[2]], raw=[*found.held[:2], found.raw[2]])
    assert turned.as_json()["worse_than_no_fit"] == ["TTFT", "TPOT"]
    assert turned.worse[0] == (found.raw[0], found.held[0])


def test_a_calibration_says_what_it_is_of_and_can_be_used(tmp_path):
    target = as_subject(served(1.2, 1.5, n=30))
    target.facts = Facts("requests", tmp_path / "made.jsonl", MODEL, GPU, target.facts.limits)
    found = calibrate(target, 0.5)
    (made,) = calibrations(target, found, "mine", "bench calibrate made.jsonl")
    path = tmp_path / "mine.json"
    path.write_text(made.as_json())
    read = load_calibration(str(path))
    assert (read.name, read.model, read.gpu, read.kind) == ("mine", MODEL, GPU, "scaled")
    assert [(h.metric, h.statistic, h.n) for h in read.held_out] == [
        ("TTFT", "median", 15), ("TTFT", "p90", 15), ("TPOT", "mean", 15), ("TPOT", "p90", 15),
        ("E2E", "mean", 15), ("E2E", "p90", 15),
    ]  # fmt: skip
    assert read.source["recording"] == "made.jsonl"
    model = latency_for(MODEL, GPU, calibration=read)
    assert model.step((), 4, 4000) == ScaledLatency(model.base, read.scale, read.extra_ms).step((), 4, 4000)


def test_few_rows_are_refused():
    with pytest.raises(InvalidRun, match="5 rows to fit on and 5 held out; at least 8"):
        calibrate(as_subject(served(n=10)), 0.5)


def loops(scale=1.0, extra_ms=0.0) -> Loops:
    """Eight operating points of the 70B in FP8, one of them saturated, under known step times."""
    shapes = [(256, 16, c, tp) for tp in (4, 8) for c in (1, 2, 4)] + [(256, 24, 3, 4)]
    points = [Point(*shape, 1.0, 1.0, 0.8, 2 * shape[2]) for shape in shapes]
    points.append(Point(60_000, 32, 24, 4, 1.0, 1.0, 1.0, 24))
    facts = Facts("points", Path("points.csv"), prefix_cache=False)
    target = subject(Points(facts, points, "made"), "llama-3.1-70b-fp8", "h100", {})
    truth = target.simulate(scale, extra_ms, np.arange(len(points)))
    target.measured[:, :2] = truth[:, :2]
    return target


def test_points_are_fitted_in_folds_and_saturated_ones_are_apart():
    target = loops(1.15, 0.8)
    assert list(target.usable) == list(range(7))
    found = calibrate(target, 0.0)
    assert found.final.scale == pytest.approx(1.15, rel=0.05)
    assert max(e.mean.value for e in found.held) < 0.03
    assert [rows.tolist() for _, rows in found.parts] == [[0, 3, 6], [1, 4], [2, 5]]
    assert [e.n for e in found.held] == [7, 7]
    assert [e.n for e in found.apart] == [1, 1]
    names = [made.model for made in calibrations(target, found, "x", "")]
    assert names == ["llama-3.1-70b-fp8:tp4", "llama-3.1-70b-fp8:tp8"]


@pytest.mark.parametrize(
    ("model", "gpu", "said", "message"),
    [
        (None, "a100", "", "does not say its model: give --model"),
        ("llama-3.1-8c", "a100", "", "did you mean"),
        ("llama-3.1-70b", "a100", "llama-3.1-8b", "was recorded with llama-3.1-8b, not llama-3.1-70b"),
        ("llama-3.1-8b", "b300", "", "unknown gpu"),
    ],
)
def test_a_recording_of_something_else_is_refused(model, gpu, said, message):
    recording = served(n=3)
    recording = type(recording)(Facts("requests", "made.jsonl", said), recording.requests)
    with pytest.raises(UsageError, match=message):
        subject(recording, model, gpu, {})

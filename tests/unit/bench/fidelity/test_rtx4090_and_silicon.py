"""Parts b and c: what is written down is what comes out, on the recordings where they are."""

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest

from bench.calibration.errors import errors
from bench.calibration.recordings import Facts, Point, Points
from bench.calibration.subject import subject
from bench.fidelity.part import Options
from bench.fidelity.parts import b_rtx4090, c_silicon
from systems.latency import latency_for, load_calibration

ROOT = Path(__file__).parents[4]
DATA = ROOT.parent / "shared" / "data"
real = pytest.mark.skipif(not DATA.exists(), reason="no ../shared/data")


def record(name):
    return json.loads((ROOT / "docs" / "fidelity" / f"{name}.json").read_text())


@pytest.mark.parametrize("part", [b_rtx4090.PART, c_silicon.PART])
def test_a_missing_recording_is_named(part, tmp_path):
    assert str(tmp_path) in part.missing(Options(tmp_path, tmp_path))


@real
@pytest.mark.parametrize("part", [b_rtx4090.PART, c_silicon.PART])
def test_nothing_is_missing_here(part, tmp_path):
    assert part.missing(Options(DATA, tmp_path)) == ""


@real
def test_b_is_what_is_written_down():
    recording = b_rtx4090.READER.read(DATA / b_rtx4090.FOLDER)
    played = b_rtx4090.replay(
        recording.requests,
        b_rtx4090.engine_for(latency_for(b_rtx4090.MODEL, b_rtx4090.GPU), recording.facts, {}),
        latency_for(b_rtx4090.MODEL, b_rtx4090.GPU),
    )
    measured = np.array([[r.ttft, np.nan if r.tpot is None else r.tpot, r.e2e] for r in recording.requests])
    written = {one["metric"]: one for one in record("b-rtx4090")["numbers"]["errors"]}
    for one in errors(played.times(), measured):
        assert one.n == written[one.metric]["n"]
        assert one.mean.value == pytest.approx(written[one.metric]["mean"]["value"])
        assert one.of_means.value == pytest.approx(written[one.metric]["of_means"]["value"])
    assert (
        sum(call.preemptions for call in played.calls)
        == (record("b-rtx4090")["numbers"]["preemptions"]["as it is"]["preemptions"])
    )


@real
def test_the_card_s_table_is_what_its_exporter_makes_of_the_profile():
    spec = importlib.util.spec_from_file_location("exporter", ROOT / "scripts" / "export_profile_table.py")
    exporter = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(exporter)
    folder = DATA / "llmservingsim"
    made = exporter.export(
        exporter.Profile(folder / "profile"), json.loads((folder / "meta.json").read_text())
    )
    there = json.loads((ROOT / "systems/latency/tables/llama-3.1-8b_rtx4090.json").read_text())
    made["source"]["exported"] = there["source"]["exported"]
    assert made == there


@pytest.mark.parametrize("tp", [2, 4, 8])
def test_the_shipped_calibrations_are_those_of_the_record(tp):
    made, kept = load_calibration(f"llama-3.1-70b-fp8-h100-tp{tp}"), record("c-silicon")["numbers"]
    assert (made.scale, made.extra_ms) == (kept["fit"]["scale"], kept["fit"]["extra_ms"])
    assert (made.model, made.gpu) == (f"llama-3.1-70b-fp8:tp{tp}", "h100")
    held = {one["metric"]: one for one in kept["by_size"][str(tp)]}
    widest = {(metric, "p90"): one["p90"] for metric, one in held.items()}
    means = {("TTFT", "median"): held["TTFT"]["median"], ("TPOT", "mean"): held["TPOT"]["mean"]}
    assert {(h.metric, h.statistic): h.error for h in made.held_out} == pytest.approx(
        widest | {key: one["value"] for key, one in means.items()}, abs=1e-5
    )
    model = latency_for(made.model, made.gpu, calibration=made)
    assert made.source["table"] == model.base.digest, "the table has changed since: bench fidelity c"
    assert model.uncertainty[1] == pytest.approx(1 + max(widest.values()), abs=1e-5)
    assert {h.n for h in made.held_out} == {held["TTFT"]["n"], held["TPOT"]["n"]}


@real
def test_c_is_what_is_written_down():
    points = c_silicon.READER.read(DATA / c_silicon.FILE)
    loops = subject(points, c_silicon.MODEL, c_silicon.GPU, {})
    rows = {one["row"]: one for one in record("c-silicon")["numbers"]["rows"]}
    assert sorted(rows) == list(range(45))
    assert {row for row, one in rows.items() if one["saturated"]} == set(range(45)) - set(loops.usable)
    some = np.array([1, 22, 31])
    times = loops.simulate(1.0, 0.0, some)
    assert times[:, :2] == pytest.approx(np.array([rows[row]["raw_s"] for row in some]))


def test_tokens_in_use_by_littles_law():
    # decode takes 1000 x 0.1 s = 100 s, TTFT 300 s: a quarter of the 40 requests is in the batch
    point = Point(8192, 1000, 40, 2, 300.0, 0.1)
    other = Point(1024, 1000, 40, 2, 300.0, 0.1)
    assert c_silicon.in_use(Points(Facts("points", Path("p")), [point, other], "")) == [10 * (8192 + 500)]


@pytest.mark.parametrize("tp", [2, 4, 8])
def test_what_c_says_of_raw_step_times_is_not_what_was_fitted(tp):
    kept = record("c-silicon")
    rows = [row for row in kept["validations"] if row["model"].endswith(f":tp{tp}")]
    raw = {row["metric"]: row for row in rows if row["fitted"] == "nothing"}
    for one in kept["numbers"]["raw_by_size"][str(tp)]:
        statistic = "median" if one["metric"] == "TTFT" else "mean"
        row = raw[one["metric"]]
        assert row["error"] == pytest.approx(one[statistic]["value"], abs=1e-5)
        assert f"{one['of_means']['value']:+.1%}" in row["statistic"]
    assert len(rows) == 2 * len(raw) == 4


def test_the_errors_of_all_points_include_the_saturated_ones():
    kept = record("c-silicon")
    rows = kept["numbers"]["rows"]
    pairs = {key: np.array([one[key] + [np.nan] for one in rows]) for key in ("calibrated_s", "measured_s")}
    again = {one.metric: one for one in errors(pairs["calibrated_s"], pairs["measured_s"], 1)}
    for one in kept["numbers"]["with_saturated"]:
        assert (one["n"], one["mean"]["value"]) == (45, pytest.approx(again[one["metric"]].mean.value))
    assert f"{again['TPOT'].mean.value:.2%} of TPOT (mean)" in kept["page"]


@pytest.mark.parametrize("name", ["b-rtx4090", "c-silicon"])
def test_bars_come_with_their_intervals(name):
    for bar in record(name)["bars"]:
        low, high = bar["interval"]
        assert low <= max(bar["got"], -bar["got"]) <= high or low <= -bar["got"] <= high

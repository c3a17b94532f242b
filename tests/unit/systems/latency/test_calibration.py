"""Calibrations: files, what is refused and how, linear steps, and what a run makes of one."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from systems.latency import Calibration, HeldOut, latency_for, load_calibration
from systems.latency.calibration import TERMS, LinearLatency, LinearModel, band_of, calibrations, parse
from systems.latency.facts import full_name, same_model
from vocabulary import INF, on_grid

SCALED = Calibration(
    "mine", "scaled", "llama-3.1-8b", "a100", 1.1, 0.75,
    held_out=(HeldOut("TPOT", "mean", 0.06, 12),), source={"file": "run.jsonl", "rows": 36},
)  # fmt: skip
LINEAR = Calibration(
    "cpu", "linear", "tiny", "cpu", coefficients={"step": 2.0, "token": 0.25, "pair": 1e-5},
    kv_blocks=100, max_model_len=4096,
)  # fmt: skip
PREFILLS = [(100, 0), (7, 48)]
COEFFICIENTS = st.fixed_dictionaries(
    {"step": st.floats(0.001, 50)}, optional={term: st.floats(0, 0.5) for term in TERMS[1:]}
)


def written(folder, calibration):
    path = folder / "c.json"
    path.write_text(calibration.as_json())
    return str(path)


@pytest.mark.parametrize("calibration", [SCALED, LINEAR], ids=["scaled", "linear"])
def test_a_file_gives_the_same_calibration_again(tmp_path, calibration):
    read = load_calibration(written(tmp_path, calibration))
    assert read == calibration
    assert read.digest == calibration.digest


def test_the_digest_is_of_what_decides_a_step_time_and_of_what_results_say_of_it():
    assert replace(SCALED, source={}).digest == SCALED.digest
    assert len({replace(SCALED, **new).digest for new in ({"name": "other"}, {"held_out": ()}, {})}) == 3
    changed = [replace(SCALED, scale=1.2), replace(SCALED, extra_ms=0.0)]
    changed += [replace(LINEAR, coefficients={"step": 2.0}), LINEAR]
    assert len({c.digest for c in (SCALED, *changed)}) == 5


def as_data(**changes):
    return {**json.loads(SCALED.as_json()), **changes}


BAD = [
    ({"scale": "1.1"}, "field 'scale' must be int or float, got '1.1'"),
    ({"scale": 0}, "need a scale in 0.01..100"),
    ({"scale": float("nan")}, "need a scale in 0.01..100 and"),
    ({"scale": 1e308}, "scale in 0.01..100 and extra_ms in 0..100000"),
    ({"extra_ms": -1}, "extra_ms in 0..100000"),
    ({"kv_blocks": -1}, "are a linear calibration's"),
    ({"coefficients": {"zz": 1}}, "coefficients, kv_blocks and max_model_len are a linear"),
    ({"held_out": [{"metric": "TPOT", "statistic": "mean", "error": 0.1, "n": -3}]}, "n of TPOT must be"),
    ({"kind": "cubic"}, "scaled or linear, got 'cubic'"),
    ({"kind": None}, "field 'kind' must be str"),
    ({"gpus": 1}, "field 'gpus' is unknown"),
    ({"coefficients": [1, 2]}, "field 'coefficients' must be dict"),
    ({"coefficients": {"step": "2"}}, "coefficient 'step' must be"),
    ({"held_out": 3}, "field 'held_out' must be list"),
    ({"held_out": ["TPOT"]}, "held_out: an object is needed, got 'TPOT'"),
    ({"held_out": [{"metric": "TPOT"}]}, "held_out: field 'statistic' is missing"),
    ({"held_out": [{"metric": "TPOT", "statistic": "mean", "error": -0.1, "n": 3}]}, "must be a fraction"),
    ({"format": 2}, "no calibration of format 1"),
    ({"kind": "linear"}, "coefficients must be in 0..100000 ms, and one of step, token, row"),
    ({"kind": "linear", "coefficients": {"step": 1, "stepp": 1}}, "no term 'stepp'; there are: step, token"),
    ({"kind": "linear", "coefficients": {"step": 1.0}}, "needs kv_blocks and max_model_len"),
]


@pytest.mark.parametrize(
    ("text", "words"),
    [("[" * 100_000, "nested too deeply"),
     (json.dumps({k: v for k, v in as_data().items() if k != "scale"}), "field 'scale' is missing")],
    ids=["deep", "no scale"],
)  # fmt: skip
def test_what_cannot_be_a_calibration_is_said(tmp_path, text, words):
    path = tmp_path / "bad.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=words):
        load_calibration(str(path))


@pytest.mark.parametrize(("changes", "words"), BAD, ids=[words for _, words in BAD])
def test_a_bad_file_is_one_line_that_names_file_and_field(tmp_path, changes, words):
    path = tmp_path / "bad.json"
    path.write_text(json.dumps(as_data(**changes)))
    with pytest.raises(ValueError, match=r"bad\.json") as raised:
        load_calibration(str(path))
    assert words in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_field_that_is_missing_is_named():
    data = as_data()
    del data["gpu"]
    with pytest.raises(ValueError, match="field 'gpu' is missing"):
        parse(data)


@pytest.mark.parametrize("text", ["", "[]", "{", "\x00", "<<<<<<< HEAD"])
def test_what_is_no_json_is_one_line(tmp_path, text):
    path = tmp_path / "bad.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"bad\.json"):
        load_calibration(str(path))


def test_a_name_that_is_not_shipped():
    with pytest.raises(ValueError, match=r"no calibration 'no-such'.*or give a \.json file"):
        load_calibration("no-such")
    with pytest.raises(OSError):
        load_calibration("no/such.json")


def test_shipped_calibrations_can_be_used():
    for name in calibrations():
        calibration = load_calibration(name)
        assert calibration.name == name
        assert latency_for(calibration.model, calibration.gpu, calibration=calibration).step([], 1, 10) > 0


# Linear steps


def test_a_linear_step_is_its_formula():
    terms = dict(zip(TERMS, (2.0, 0.1, 0.3, 0.001, 1e-5), strict=True))
    pairs = 100 * 101 // 2 + 7 * 48 + 7 * 8 // 2
    mixed = 2.0 + 0.1 * (107 + 3) + 0.3 * (3 + 2) + 0.001 * 900 + 1e-5 * pairs
    model = LinearLatency("x", terms)
    assert model.step(PREFILLS, 3, 900) == pytest.approx(mixed / 1e3, abs=2e-9)
    assert model.step([], 3, 900) == pytest.approx((2.0 + 0.4 * 3 + 0.9) / 1e3, abs=2e-9)


@given(COEFFICIENTS, st.integers(1, 512), st.integers(0, 2_000_000))
def test_a_decode_line_is_the_step_to_the_last_bit(coefficients, n_decode, sum_ctx):
    model = LinearLatency("x", coefficients)
    a, b, limit = model.decode_line(n_decode, sum_ctx)
    assert limit == INF
    for ctx in (sum_ctx, sum_ctx + 1, sum_ctx + 4097 * n_decode):
        assert on_grid(a + b * ctx) == model.step([], n_decode, ctx)


def test_a_step_without_calls_is_refused():
    with pytest.raises(ValueError, match="at least one call"):
        LinearModel(LINEAR).step([], 0, 0)


def test_a_linear_model_serves_what_its_calibration_says():
    model = latency_for("tiny", "cpu", calibration=LINEAR)
    assert (model.model, model.gpu, model.tp, model.kv_blocks, model.max_model_len) == (
        "tiny",
        "cpu",
        1,
        100,
        4096,
    )
    assert "calibration cpu" in model.describe()
    assert "no held-out error" in model.describe()
    low, high = model.uncertainty
    assert low < 1 < high


# Corrected tables


def test_a_table_is_corrected_by_two_numbers():
    base, model = latency_for("llama-3.1-8b", "a100"), latency_for("llama-3.1-8b", "a100", calibration=SCALED)
    for step in ([], 8, 9000), (PREFILLS, 3, 900):
        assert model.step(*step) == pytest.approx(1.1 * base.step(*step) + 0.75e-3, abs=1e-8)
    assert (model.kv_blocks, model.max_model_len) == (base.kv_blocks, base.max_model_len)
    assert model.digest not in (base.digest, SCALED.digest)
    assert model.uncertainty == pytest.approx((0.85, 1.15))
    assert "TPOT 6.0% mean (n=12)" in model.describe()
    assert model.provenance["calibration"]["name"] == "mine"


def test_factors_come_after_the_calibration():
    model = latency_for("llama-3.1-8b", "a100", {"decode": 2.0}, SCALED)
    assert model.step([], 8, 9000) > latency_for("llama-3.1-8b", "a100", calibration=SCALED).step([], 8, 9000)


@pytest.mark.parametrize(
    ("calibration", "model", "gpu"),
    [(SCALED, "llama-3.1-8b", "h100"), (SCALED, "qwen3-8b", "a100"), (LINEAR, "llama-3.1-8b", "a100")],
)
def test_a_calibration_of_another_model_or_gpu_is_refused(calibration, model, gpu):
    with pytest.raises(ValueError, match=f"calibration {calibration.name} is of {calibration.model} on"):
        latency_for(model, gpu, calibration=calibration)


def test_a_calibration_file_is_found_from_its_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("c.json").write_text(SCALED.as_json())
    assert load_calibration("c.json") == SCALED


def held(statistic, error):
    return HeldOut("TPOT", statistic, error, 20)


@pytest.mark.parametrize(
    ("errors", "width"),
    [
        ([], 0.15),
        ([("error of means", 0.001)], 0.15),
        ([("mean", 0.04), ("median", 0.3)], 0.3),
        ([("mean", 0.04), ("p90", 0.08), ("median", 0.02), ("p90", 0.11)], 0.11),
        ([("p90", 3.0)], 3.0),
    ],
)
def test_the_band_is_the_largest_p90_and_a_mean_makes_it_no_narrower(errors, width):
    low, high = band_of([held(*one) for one in errors])
    assert (low, high) == pytest.approx((max(0.0, 1 - width), 1 + width))


def test_a_calibration_made_on_another_table_is_refused():
    base = latency_for("llama-3.1-8b", "a100")
    same = replace(SCALED, source={"table": base.digest})
    assert latency_for("llama-3.1-8b", "a100", calibration=same).tp == 1
    other = replace(SCALED, source={"table": "0123456789abcdef"})
    with pytest.raises(
        ValueError, match=r"other step times .*0123456789ab, here .*run bench calibrate again"
    ):
        latency_for("llama-3.1-8b", "a100", calibration=other)


@pytest.mark.parametrize(
    ("of", "asked", "gpu"),
    [
        ("llama-3.1-70b-fp8", "llama-3.1-70b-fp8", "h100"),
        ("llama-3.1-70b-fp8", "llama-3.1-70b-fp8:tp4", "h100"),
        ("llama-3.1-70b-fp8:tp4", "llama-3.1-70b-fp8", "h100"),
        ("llama-3.1-70b-fp8:tp1", "llama-3.1-70b-fp8:tp1", "h200"),
        ("llama-3.1-8b:tp1", "llama-3.1-8b", "a100"),
        ("llama-3.1-8b", "llama-3.1-8b:tp1", "a100"),
    ],
)
def test_a_calibration_serves_its_model_under_any_spelling(of, asked, gpu):
    model = latency_for(asked, gpu, calibration=replace(SCALED, model=of, gpu=gpu))
    assert model.calibration.model == of
    linear = latency_for(asked, gpu, calibration=replace(LINEAR, model=of, gpu=gpu))
    assert (linear.model, linear.tp) == (model.model, model.tp)


def test_another_size_is_another_model():
    assert not same_model("llama-3.1-70b", "llama-3.1-70b:tp8")
    assert not same_model("tiny", "tiny:tp1")
    assert same_model("tiny: 1", "tiny: 1")
    one = replace(SCALED, model="llama-3.1-70b-fp8", gpu="h200")
    with pytest.raises(ValueError, match=r"is of llama-3\.1-70b-fp8 on h200, not of llama-3.1-70b-fp8:tp1"):
        latency_for("llama-3.1-70b-fp8:tp1", "h200", calibration=one)


@pytest.mark.parametrize(
    ("model", "tp"), [("llama-3.1-70b", 1), ("llama-3.1-70b", 4), ("qwen3-8b", 1), ("x", 1)]
)
def test_a_full_name_means_the_size_it_was_made_of(model, tp):
    assert same_model(full_name(model, tp), f"{model}:tp{tp}" if model != "x" else model)


@pytest.mark.parametrize(
    ("model", "tp"),
    [("llama-3.1-70b:tp8", 8), ("llama-3.1-70b", 4), ("tiny:tp2", 2), ("tiny", 1), ("tiny: one", 1)],
)
def test_a_linear_model_has_the_gpus_of_its_name(model, tp):
    assert LinearModel(replace(LINEAR, model=model)).tp == tp

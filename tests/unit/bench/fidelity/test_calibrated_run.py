"""A run that names a calibration: another cell, a badge that says so, and what is refused."""

import json

import pytest

from bench.config import CALIBRATION, RunConfig
from bench.errors import UsageError
from bench.plan import plan
from systems.latency import Calibration, HeldOut, latency_for

MINE = Calibration(
    "mine", "scaled", "llama-3.1-8b", "a100", 1.1, 0.75, held_out=(HeldOut("TPOT", "mean", 0.06, 12),)
)


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "mine.json"
    path.write_text(MINE.as_json())
    return path


def planned(file=None, **other):
    knobs = {} if file is None else {CALIBRATION: str(file)}
    return plan(RunConfig("vllm-opt", "chatbot", n=2, rate=1.0, knobs=knobs, **other))


def test_it_is_another_cell_with_the_calibration_on_its_badge(file):
    plain, calibrated = planned(), planned(file)
    assert calibrated.cell != plain.cell
    assert calibrated.program_hash == plain.program_hash
    assert (
        "calibration mine (scale 1.1, +0.75 ms per step; held out: TPOT 6.0% mean (n=12))" in calibrated.badge
    )
    assert "calibration" not in plain.badge
    assert calibrated.latency.step([], 1, 100) > plain.latency.step([], 1, 100)


def test_the_cell_depends_on_what_the_file_says_and_not_on_where_it_is(file, tmp_path):
    """The name and the errors, too: a result of another fit must not answer with its own."""
    first = planned(file).cell
    other = tmp_path / "other.json"
    other.write_text(file.read_text())
    assert planned(other).cell == first
    for old, new in (("0.75", "0.8"), ('"name": "mine"', '"name": "theirs"'), ('"n": 12', '"n": 11')):
        other.write_text(file.read_text().replace(old, new))
        assert planned(other).cell != first


def test_a_linear_one_brings_its_own_limits(tmp_path):
    linear = Calibration(
        "cpu", "linear", "tiny", "cpu", coefficients={"step": 2.0}, kv_blocks=300, max_model_len=4096
    )
    path = tmp_path / "cpu.json"
    path.write_text(linear.as_json())
    served = planned(path, model="tiny", gpu="cpu", parameters={"token_scale": "1/8"})
    assert (served.engine.kv_blocks, served.engine.max_model_len) == (300, 4096)
    assert served.latency.step([], 3, 99) == pytest.approx(2e-3, abs=1e-9)


REFUSED = [
    (
        lambda data: data | {"gpu": "h100"},
        "calibration mine is of llama-3.1-8b on h100, not of llama-3.1-8b on a100",
    ),
    (lambda data: data | {"scale": "x"}, "field 'scale' must be int or float"),
    (lambda data: {}, "no calibration of format 1"),
]


@pytest.mark.parametrize(("change", "words"), REFUSED, ids=["another GPU", "no number", "no calibration"])
def test_what_cannot_be_used_is_one_line(file, change, words):
    file.write_text(json.dumps(change(json.loads(MINE.as_json()))))
    with pytest.raises(UsageError) as raised:
        planned(file)
    assert words in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(UsageError, match=r"cannot read calibration .*none\.json: No such file"):
        planned(tmp_path / "none.json")


def test_a_scaled_table_of_the_same_numbers_has_the_same_steps(file):
    base, calibrated = latency_for("llama-3.1-8b", "a100"), planned(file).latency
    assert calibrated.step([(64, 0)], 2, 500) == pytest.approx(
        1.1 * base.step([(64, 0)], 2, 500) + 0.75e-3, abs=1e-8
    )

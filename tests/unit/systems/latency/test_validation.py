"""Validations: written by the suite, read by lists and cards."""

import json
import math

import pytest

from systems.latency import validation
from systems.latency.validation import Validation, validations, write

ROW = Validation("llama-3.1-8b", "rtx4090", "E2E", "mean", 0.013, 300, "nothing", "a trace")


@pytest.fixture
def file(tmp_path, monkeypatch):
    path = tmp_path / "validations.json"
    monkeypatch.setattr(validation, "FILE", path)
    validation.every.cache_clear()
    yield path
    validation.every.cache_clear()


def as_row(**changes):
    return {**ROW.__dict__, **changes}


def test_what_is_written_is_read_in_order(file):
    write([as_row(), as_row(gpu="a100")], file)
    assert validations("llama-3.1-8b", "rtx4090") == [ROW]
    assert [row.gpu for row in validation.every()] == ["rtx4090", "a100"]
    assert validations("llama-3.1-8b", "h100") == []
    write([], file)
    assert validation.every() == ()
    assert json.loads(file.read_text()) == []


def test_in_words():
    assert str(ROW) == "E2E 1.3% mean of 300 against a trace (fitted: nothing)"


@pytest.mark.parametrize("error", [-0.1, math.nan, math.inf, None, "0.1"])
def test_an_error_that_is_none_is_not_written(file, error):
    write([as_row()], file)
    with pytest.raises(ValueError, match="on rtx4090: error must be a fraction"):
        write([as_row(error=error)], file)
    assert validations("llama-3.1-8b", "rtx4090") == [ROW]


def test_other_fields_are_refused(file):
    with pytest.raises(TypeError, match="colour"):
        write([as_row(colour="red")], file)


def test_the_shipped_file_can_be_read():
    validation.every.cache_clear()
    assert all(row.n > 0 for row in validation.every())

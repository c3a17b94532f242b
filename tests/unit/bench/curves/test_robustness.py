"""Which claims survive: made of outcomes by hand, kept, and told on later pages."""

import math
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from bench.curves import robustness as module
from bench.curves.robustness import AS_IT_IS, keep_record, lasting, markdown, names, record, table, vary
from bench.curves.runner import Options, Outcome
from bench.curves.spec import parse
from bench.errors import InvalidRun, MissingError
from bench.reproduce import load

DATA, PATH = load("autellix:fig12")
NAME = "autellix:fig12"


def claim(number, word, got=1.5):
    return {"id": f"c{number}", "model": "m", "statement": f"claim {number}", "expected": "2x", "got": got,
            "low": got - 0.1, "high": got + 0.1, "transient": word}  # fmt: skip


def outcome(*words, options=None):
    claims = pd.DataFrame([claim(i, word) for i, word in enumerate(words)])
    curves = parse(DATA, PATH)
    return Outcome(
        curves, options or Options("robust", Path("x")), {"claims": claims}, pd.DataFrame(), 0, 0, 0, 0, []
    )


BASE = outcome("reproduced", "partly", "exploratory: partly", "not testable here")
LESS = outcome("reproduced", "not reproduced", "exploratory: partly", "not testable here")


def test_a_claim_survives_if_its_word_never_changes():
    rows = table({AS_IT_IS: BASE, "prefill x 0.85": LESS})
    assert [r["survives"] for r in rows] == ["yes", "no", "n/a (exploratory)", "untested"]
    assert rows[1]["changed"] == ["prefill x 0.85: not reproduced"]
    assert rows[0]["got"][AS_IT_IS] == "1.50 [1.40, 1.60]"


def test_what_is_kept_is_found_by_later_pages(tmp_path):
    options = Options("robust", tmp_path)
    found = record({AS_IT_IS: BASE, "H100": LESS, "decode x 0.85": "no room"}, options, NAME)
    assert found["missing"] == [n for n in names() if n not in (AS_IT_IS, "H100", "decode x 0.85")]
    keep_record(found, options)
    told = lasting(replace_options(BASE, options), NAME)
    assert told.column[:2] == ["yes (so far)", "no; H100: not reproduced (so far)"]
    assert "decode x 0.85 could not be run: no room" in told.note
    small = lasting(replace_options(BASE, Options("small", tmp_path)), NAME)
    assert small.column[0] == "yes (scale robust: reproduced) (so far)"
    assert "| claim 1 | 2x | partly | no; H100: not reproduced | 1.50" in markdown(found)


def replace_options(one, options):
    return replace(one, options=options)


def test_where_nothing_was_varied_it_says_where_that_was_done_last(tmp_path):
    told = lasting(replace_options(BASE, Options("small", tmp_path)), NAME)
    assert (told.column, told.record) == ([], None)
    assert "not varied here (bench reproduce autellix:fig12 --robustness)" in told.note
    assert "last varied: docs/fig12.md" in told.note
    assert "commit" not in told.note


def test_a_record_of_other_code_says_so(tmp_path, monkeypatch):
    options = Options("robust", tmp_path)
    keep_record(record({AS_IT_IS: BASE}, options, NAME), options)
    monkeypatch.setattr(module, "code_digest", lambda: "another")
    assert "by other code (" in lasting(replace_options(BASE, options), NAME).note


def test_every_variation_is_run_and_one_that_cannot_is_said(monkeypatch):
    asked = []

    def run(data, path, options, progress):
        asked.append((options.gpu, dict(options.knobs), options.beside))
        if "engine.kv_scale" in options.knobs:
            raise InvalidRun("too long\nmore")
        return BASE

    monkeypatch.setattr(module, "run", run)
    found = dict(vary(DATA, PATH, Options("robust", Path("x"), knobs={"a.b": "1"})))
    assert list(found) == names()
    assert found["KV blocks x 0.85"] == "too long"
    assert asked[:2] == [(None, {"a.b": "1"}, False), ("h100", {"a.b": "1"}, False)]
    assert ({"a.b": "1", "engine.swap_scale": "1.15"}) in [knobs for _, knobs, _ in asked]


def test_what_would_stop_all_stops(monkeypatch):
    def run(data, path, options, progress):
        if options.gpu:
            raise MissingError("disk full")
        return BASE

    monkeypatch.setattr(module, "run", run)
    with pytest.raises(MissingError, match="disk full"):
        list(vary(DATA, PATH, Options("robust", Path("x"))))


def test_bounds_stay_bounds():
    one = outcome("partly")
    one.data["claims"] = one.data["claims"].assign(high=math.inf)
    assert table({AS_IT_IS: one})[0]["got"][AS_IT_IS] == "> 1.40"

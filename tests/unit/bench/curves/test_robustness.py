"""Which claims survive: made of outcomes by hand, kept, and told on later pages."""

import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest

from bench.curves import robustness as module
from bench.curves.robustness import AS_IT_IS, keep_record, lasting, markdown, names, record, table, vary
from bench.curves.runner import Options, Outcome
from bench.curves.spec import parse
from bench.errors import InvalidRun, MissingError, UsageError
from bench.reproduce import load
from bench.sensitivity import Variation

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
    assert told.column == ["yes (1 of 2) (so far)", "no; H100: not reproduced (so far)",
                           "n/a (exploratory) (so far)", "untested (so far)"]  # fmt: skip
    assert "decode x 0.85 could not be run: no room" in told.note
    small = lasting(replace_options(BASE, Options("small", tmp_path)), NAME)
    assert small.column[0] == "yes (1 of 2) (scale robust: reproduced) (so far)"
    assert "| claim 0 | 2x | reproduced | yes (1 of 2) | 1.50" in markdown(found)
    assert "| claim 1 | 2x | partly | no; H100: not reproduced | 1.50" in markdown(found)


def test_yes_is_plain_where_every_variation_was_run(tmp_path):
    options = Options("robust", tmp_path)
    keep_record(record(dict.fromkeys(names(), BASE), options, NAME), options)
    assert lasting(replace_options(BASE, options), NAME).column[0] == "yes"
    ran = dict.fromkeys(names(), BASE) | {"decode x 0.85": "no room"}
    keep_record(record(ran, options, NAME), options)
    assert lasting(replace_options(BASE, options), NAME).column[0] == "yes (10 of 11)"


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


@pytest.mark.parametrize(
    ("given", "part", "changed"),
    [
        ({"latency.prefill": "1.3"}, "prefill", {"latency.prefill": "1.105"}),
        ({"latency.prefill": "1.3"}, "decode", {"latency.prefill": "1.3", "latency.decode": "0.85"}),
        ({"engine.kv_blocks": "1000"}, "KV blocks", {"engine.kv_blocks": "850"}),
        ({"engine.kv_scale": "0.5"}, "KV blocks", {"engine.kv_scale": "0.425"}),
        ({"engine.swap_scale": "2"}, "PCIe", {"engine.swap_scale": "1.7"}),
        ({}, "PCIe", {"engine.swap_scale": "0.85"}),
    ],
)
def test_a_part_is_varied_on_top_of_what_the_user_gave(given, part, changed):
    options = module.changed(Options("robust", Path("x"), knobs=given), Variation(part, 0.85), ["mlfq"])
    assert options.knobs == changed


def test_the_systems_own_scale_of_pcie_is_multiplied(monkeypatch):
    own = {"slow": 2.0, "slower": 4.0}
    monkeypatch.setattr(
        module, "load_system", lambda name: SimpleNamespace(engine_option=lambda _: own[name])
    )
    options, pcie = Options("robust", Path("x")), Variation("PCIe", 1.15)
    assert module.changed(options, pcie, ["slow", "slow/plas"]).knobs == {"engine.swap_scale": "2.3"}
    with pytest.raises(UsageError, match=r"cannot stand for those of the systems: 2\.0, 4\.0"):
        module.changed(options, pcie, ["slow", "slower"])
    given = replace(options, knobs={"engine.swap_scale": "3"})
    assert module.changed(given, pcie, ["slow", "slower"]).knobs == {"engine.swap_scale": "3.45"}


@pytest.mark.parametrize(
    ("given", "part"), [({"engine.swap_scale": "0.0"}, "PCIe"), ({"engine.kv_blocks": "1"}, "KV blocks")]
)
def test_a_variation_that_changes_nothing_is_none(monkeypatch, given, part):
    monkeypatch.setattr(module, "run", lambda *_: BASE)
    found = dict(vary(DATA, PATH, Options("robust", Path("x"), knobs=given)))
    assert found[f"{part} x 0.85"] == f"{part} x 0.85 changes nothing here"
    assert sum(isinstance(one, str) for one in found.values()) == 2


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

import math
from dataclasses import replace
from functools import cache

import pytest

from bench.loops.frames import fits, lacking, points, table
from bench.loops.judge import judge
from bench.loops.kinds import interpolated
from bench.loops.runner import predictions
from tests.unit.bench.loops.planted import BASE, Planted, loop, luck, study

ONE = BASE["panels"][0] | {"n": [16]}
PAIR = {"top": "double", "bottom": "base"}
HIT = {"quantity": "hit", "top": "base"}
LITTLE = {"quantity": "little", "top": "double"}


def rate(config):
    """double serves twice as much; base falls beyond 16 programs, cap is best at half of the programs."""
    n = config.concurrency
    value = {8: 100.0, 16: 180.0, 32: 90.0}[n]
    if config.system == "thunderagent":
        value = 2 * {8: 100.0, 16: 180.0, 32: 250.0}[n]
    if config.system == "program-cap":
        value *= 1.5 if config.knobs["gate.programs"] == "16" else 1.0
    return value * luck(config) * (0.8 if config.parameters.get("slow") else 1.0)


@cache
def measured(seeds=8):
    scales = {"small": BASE["scales"]["small"] | {"seeds": seeds}}
    return study(Planted(rate), loop(scales=scales))


def verdict(seeds=8, **changes):
    done = measured(seeds)
    claim = {"id": "c", "statement": "s", "panels": ["a"], **changes}
    (row,) = judge(replace(done, loop=replace(done.loop, claims=loop(claims=[claim]).claims)))
    return row


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"kind": "ratio", **PAIR, "places": [16], "expected": 2.0}, "reproduced"),
        ({"kind": "ratio", **PAIR, "places": [16], "expected": 3.5}, "partly"),
        ({"kind": "ratio", **PAIR, "places": [16], "expected": 9.0}, "not reproduced"),
        ({"kind": "ratio", **PAIR, "largest": True, "expected": 5.5}, "reproduced"),
        ({"kind": "growth", "top": "base", "places": [16, 32], "expected": 0.5}, "reproduced"),
        ({"kind": "growth", "top": "base", "places": [8, 16], "expected": 0.5}, "not reproduced"),
        ({"kind": "order", "systems": ["double", "cap", "base"], "places": [16, 32]}, "reproduced"),
        ({"kind": "order", "systems": ["base", "double"], "places": [16]}, "not reproduced"),
        ({"kind": "order", "systems": ["double", "cap", "base", "same"], "places": [16]}, "not reproduced"),
        ({"kind": "monotone", "top": "double"}, "reproduced"),
        ({"kind": "monotone", "top": "base"}, "not reproduced"),
        ({"kind": "monotone", "top": "base", "direction": "down"}, "partly"),
        ({"kind": "monotone", "top": "base", "direction": "down", "places": [16, 32]}, "reproduced"),
        ({"kind": "peak", "top": "base", "expected": 16}, "reproduced"),
        ({"kind": "peak", "top": "double", "expected": 16}, "not reproduced"),
        ({"kind": "same", "top": "same", "bottom": "base", "tolerance": 0.02}, "reproduced"),
        ({"kind": "same", **PAIR, "tolerance": 0.02}, "not reproduced"),
        ({"kind": "level", **HIT, "expected": 0.85, "tolerance": 0.1}, "reproduced"),
        ({"kind": "level", **HIT, "expected": 0.5, "tolerance": 0.1}, "not reproduced"),
        ({"kind": "level", **LITTLE, "expected": 1.0, "tolerance": 0.05}, "reproduced"),
    ],
)  # fmt: skip
def test_every_kind_of_claim(changes, word):
    assert verdict(**changes)["verdict"] == word


def test_up_to_is_the_best_place_and_says_where():
    row = verdict(kind="ratio", top="double", bottom="base", expected=5.5)
    assert row["verdict"] == "reproduced"
    assert row["got"] == pytest.approx(2 * 250 / 90, rel=0.05)
    assert row["low"] < row["got"] < row["high"]
    assert "at 32" in row["note"]


def test_few_seeds_are_exploratory():
    row = verdict(seeds=3, kind="ratio", top="double", bottom="base", places=[16], expected=2.0)
    assert (row["verdict"], row["seeds"]) == ("exploratory: reproduced", 3)


def test_what_is_not_run_is_not_testable():
    row = verdict(kind="ratio", top="double", bottom="base", places=[64], expected=2.0)
    assert row["verdict"] == "not testable here"
    assert "not run at this scale" in row["note"]


def test_a_claim_of_two_panels_must_hold_in_both():
    one = BASE["panels"][0]
    panels = [one | {"n": [32]}, one | {"name": "b", "label": "B", "n": [8]}]
    claim = {"id": "c", "statement": "s", "kind": "ratio", "panels": ["a", "b"], "top": "double",
             "bottom": "base", "largest": True, "expected": 5.5}  # fmt: skip
    done = study(Planted(rate), loop(claims=[claim], panels=panels, systems=BASE["systems"][:3]))
    (row,) = judge(done)
    assert row["verdict"] == "not reproduced"
    assert row["workload"] == "B"
    assert row["got"] == pytest.approx(2.0, rel=0.05)


def test_main_effects_of_a_factorial(monkeypatch):
    corners = [
        {"name": f"{a}{b}", "system": "vllm-opt", "levels": {"a": a, "b": b},
         "knobs": {"scheduler.x": f"{a}{b}"}}
        for a in ("on", "off") for b in ("on", "off")
    ]  # fmt: skip

    def factors(config):
        mark = config.knobs["scheduler.x"]
        return (
            100.0
            * (1.5 if mark.startswith("on") else 1.0)
            * (0.9 if mark.endswith("on") else 1.0)
            * luck(config)
        )

    claims = [
        {"id": f, "statement": f, "kind": "effect", "panels": ["a"], "factor": f, "direction": "up"}
        for f in "ab"
    ]
    made = loop(systems=corners, claims=claims, reference="", panels=[ONE])
    run = Planted(factors)
    monkeypatch.setattr("bench.loops.study.plan", lambda _: None)
    a, b = judge(study(run, made))
    assert (a["verdict"], b["verdict"]) == ("reproduced", "not reproduced")
    assert a["got"] == pytest.approx(1.5, rel=0.02)
    assert b["got"] == pytest.approx(0.9, rel=0.02)


def test_predictions_name_the_assumption_that_moves_most(monkeypatch):
    claim = {"id": "p", "statement": "s", "kind": "prediction", "panels": ["a"], "top": "double",
             "bottom": "base", "places": [16], "source": "ours"}  # fmt: skip
    changed = [
        {"name": "nothing", "parameters": {"none": "1"}},
        {"name": "contexts", "parameters": {"odd": "1"}},
    ]

    def moved(config):
        odd = config.parameters.get("odd") and config.system == "thunderagent"
        return rate(config) * (0.6 if odd else 1.0)

    monkeypatch.setattr("bench.loops.study.plan", lambda _: None)
    done = study(
        Planted(moved), loop(claims=[claim], assumptions=changed, panels=[ONE], systems=BASE["systems"][:3])
    )
    (row,) = judge(done)
    assert row["verdict"] == "predicted"
    assert "moved most by contexts: 1.2" in row["expected"]
    (line,) = predictions(done).to_dict("records")
    assert line["nothing"] == pytest.approx(2.0, rel=0.05)
    assert len(points(done)) == 3 * 8  # the varied runs are not among them


def test_a_curve_is_read_between_places():
    assert interpolated([2.0, 1.0], [10.0, 20.0], 1.5) == 15.0
    assert math.isnan(interpolated([1.0, 2.0], [10.0, 20.0], 2.5))
    assert math.isnan(interpolated([math.nan], [1.0], 1.0))


def test_a_curve_that_never_comes_there_is_not_testable():
    row = verdict(kind="curve", quantity="hit", x="pressure", x_value=1e6, top="base", expected=0.5)
    assert row["verdict"] == "not testable here"


def test_the_tables_of_a_page():
    panel = BASE["panels"][0] | {"fit": {"system": "base", "place": 8, "steps_per_min": 80.0}}

    def fitted(config):
        return rate(config) / float(config.knobs.get("latency.decode", "1"))

    done = study(Planted(fitted), loop(panels=[panel], untestable={"Fig. 9": "no such GPU"}))
    rows = table(done)
    assert len(rows) == 4 * 3
    assert rows.little.between(0.97, 1.03).all()
    base = rows[(rows.system == "base") & (rows.place == 8)].steps_per_min.item()
    assert base == pytest.approx(80.0, rel=0.2)  # but for the luck of the fit's seed
    assert list(fits(done).what) == ["step times x", *(f"cap: gate.programs at {n}" for n in (8, 16, 32))]
    assert lacking(done) == ["Fig. 9: no such GPU"]

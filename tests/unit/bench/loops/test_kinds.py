"""What a verdict must not pass over: planted runs with something missing, unpaired or without an effect."""

import math
from dataclasses import replace

import pytest

from bench.loops.frames import fits, table
from bench.loops.judge import judge
from bench.loops.kinds import moves
from bench.loops.runner import predictions
from tests.unit.bench.loops.planted import BASE, Planted, loop, luck, study

ONE = BASE["panels"][0] | {"n": [16]}
PAIR = [BASE["systems"][0], BASE["systems"][2]]
DOUBLE = {"id": "c", "statement": "s", "kind": "ratio", "panels": ["a"], "top": "double", "bottom": "base",
          "places": [16], "expected": 2.0}  # fmt: skip


def rate(config):
    return 100.0 * luck(config) * (2.0 if config.system == "thunderagent" else 1.0)


def one(claim, run=None, **changes):
    """The row of one claim on a planted study."""
    done = study(
        run or Planted(rate), loop(**{"panels": [ONE], "systems": PAIR, "claims": [claim]} | changes)
    )
    (row,) = judge(done)
    return row


def test_a_panel_that_is_not_tested_caps_the_word():
    beside = {"name": "b", "label": "B"}
    claim = DOUBLE | {"panels": ["a", "b"]}
    both = one(claim, panels=[ONE, ONE | beside])
    assert both["verdict"] == "reproduced"
    lacks = one(claim, panels=[ONE, ONE | beside | {"systems": ["base"]}])
    assert lacks["verdict"] == "partly"
    assert "not tested in B" in lacks["note"]
    scales = {"small": BASE["scales"]["small"] | {"panels": ["a"]}}
    absent = one(claim, panels=[ONE, ONE | beside], scales=scales)
    assert (absent["verdict"], "not tested in B" in absent["note"]) == ("partly", True)


def test_a_crossing_of_axes_that_a_scale_leaves_out_caps_the_word():
    axes = [{"name": "tools", "crossed": True,
             "values": [
                 {"name": "fast"},
                 {"name": "slow", "knobs": {"engine.swap_scale": "2"}}]}]  # fmt: skip
    claim = DOUBLE | {"panels": ["a"]}
    assert one(claim, axes=axes)["verdict"] == "reproduced"
    scales = {"small": BASE["scales"]["small"] | {"only": {"tools": ["fast"]}}}
    row = one(claim, axes=axes, scales=scales)
    assert (row["verdict"], "not tested in tools slow" in row["note"]) == ("partly", True)


def test_a_fit_in_vain_is_said_in_the_verdict():
    fit = {"fit": {"system": "base", "place": 16, "steps_per_min": 1e4}}
    assert "NOT REACHED" in one(DOUBLE, panels=[ONE | fit])["note"]
    assert "NOT REACHED" not in one(DOUBLE)["note"]


def test_a_window_cut_short_on_one_seed_is_no_value_at_all():
    def short(config):
        return 1.5 if config.system == "thunderagent" and config.seed == 3 else 4.0

    row = one(DOUBLE, Planted(rate, short))
    assert row["verdict"] == "not testable here"
    assert "no value for seed 3; window cut short: double at 16" in row["note"]
    level = {"id": "l", "statement": "s", "kind": "level", "panels": ["a"], "quantity": "hit",
             "top": "double", "expected": 0.9, "tolerance": 0.1}  # fmt: skip
    assert one(level)["verdict"] == "reproduced"
    assert "no value for seed 3" in one(level, Planted(rate, short))["note"]
    done = study(Planted(rate, short), loop(panels=[ONE], systems=PAIR))
    rows = table(done).set_index("system")
    assert math.isnan(rows.steps_per_min["double"])
    assert rows.makespan["double"] > 0  # of the whole run
    assert rows.steps_per_min["base"] > 0
    assert rows.window["double"] < 0.5 < rows.window["base"]


def test_no_value_of_a_tuned_knob_had_a_full_window():
    done = study(Planted(rate, lambda c: 1.5 if c.system == "program-cap" else 4.0), loop(panels=[ONE]))
    assert done.untuned == {("a", "cap")}
    assert "chosen by nothing" in fits(done).why.iloc[0]


def test_a_fit_whose_programs_ran_out_goes_to_slower_steps():
    def per_minute(config):
        return rate(config) / float(config.knobs.get("latency.decode", "1"))

    def minutes(config):
        return 4.0 if float(config.knobs.get("latency.decode", "1")) > 2.0 else 1.0

    panel = ONE | {"fit": {"system": "base", "place": 16, "steps_per_min": 30.0}}
    done = study(Planted(per_minute, minutes), loop(panels=[panel], systems=PAIR))
    (fit,) = done.fits.values()
    assert fit.reached
    assert fit.scale > 2.0


def effect(values):
    """The row of a claim about factor a; ``values``: steps/min by level."""
    corners = [
        {"name": f"a {a}", "system": "vllm-opt", "levels": {"a": a}, "knobs": {"engine.swap_scale": v}}
        for a, v in (("on", "2"), ("off", "1"))
    ]
    claim = {"id": "a", "statement": "a", "kind": "effect", "panels": ["a"], "factor": "a",
             "quantity": "hold_p99"}  # fmt: skip
    done = study(Planted(lambda c: 400.0), loop(systems=corners, claims=[claim], reference="", panels=[ONE]))
    done.rows = [
        replace(row, numbers=row.numbers | {"hold_p99": values[row.system][row.seed - 1]})
        for row in done.rows
    ]
    (row,) = judge(done)
    return row


@pytest.mark.parametrize(
    ("gains", "word"),
    [
        ([1.2, 1.3, 1.2, 1.3, 1.2, 1.3, 1.2, 1.3], "reproduced"),
        ([1.2, 0.98, 1.2, 0.98, 1.2, 0.98, 1.2, 0.98], "partly"),
        ([1.2, 0.85, 1.2, 0.85, 1.2, 0.85, 1.2, 0.85], "not reproduced"),  # the mean's sign alone
        ([0.0, 1.3, 1.2, 1.3, 1.2, 1.3, 1.2, 1.3], "not testable here"),  # no logarithm
        ([math.nan, 1.3, 1.2, 1.3, 1.2, 1.3, 1.2, 1.3], "not testable here"),
    ],
)  # fmt: skip
def test_an_effect_needs_more_than_the_means_sign(gains, word):
    row = effect({"a on": gains, "a off": [1.0] * 8})
    assert row["verdict"] == word


def test_assumptions_are_compared_on_the_same_seeds():
    claim = DOUBLE | {"kind": "prediction", "source": "ours"}

    def noisy(config):  # the ratio differs from seed to seed, whatever is assumed
        own = 1.0 + 0.1 * config.seed if config.system == "thunderagent" else 1.0
        return rate(config) * own * (0.8 if config.parameters.get("odd") and own > 1 else 1.0)

    scales = {"small": BASE["scales"]["small"] | {"assumption_seeds": 2}}
    changed = [
        {"name": "nothing", "parameters": {"none": "1"}},
        {"name": "contexts", "parameters": {"odd": "1"}},
    ]
    made = loop(claims=[claim], assumptions=changed, panels=[ONE], systems=PAIR, scales=scales)
    done = study(Planted(noisy), made)
    (claimed,), (panel,) = done.loop.claims, done.panels
    by = moves(done, panel, claimed, 16)
    assert by["nothing"].value == pytest.approx(1.0, rel=0.03)
    assert by["contexts"].value == pytest.approx(0.8, rel=0.03)
    (line,) = predictions(done).to_dict("records")
    assert line["nothing"] == pytest.approx(line["predicted"], rel=0.03)
    (row,) = judge(done)
    assert row["expected"].startswith("moved most by contexts: ")


def test_a_peak_is_above_what_lies_outside_its_span():
    shape = {8: 100.0, 16: 115.0, 32: 90.0}
    claim = {"id": "p", "statement": "s", "kind": "peak", "panels": ["a"], "top": "base", "expected": 16}

    def peak(noise):
        def rates(config):
            odd = 1 + noise * ((config.seed * config.concurrency // 8) % 3)
            return shape[config.concurrency] * luck(config) * odd

        return one(claim, Planted(rates), panels=[BASE["panels"][0]], systems=BASE["systems"][:1])

    assert peak(0.0)["verdict"] == "reproduced"
    assert peak(0.6)["verdict"] == "not reproduced"  # wherever the largest mean is

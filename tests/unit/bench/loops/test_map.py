"""Which leads on the map are clear: told from everyone, by enough, on enough seeds."""

import math

import pandas as pd
import pytest

from bench.loops.map import winners
from bench.loops.study import choices
from reports.figures.settle_map import FIGURE, exploratory, layout, tabulate, words
from tests.unit.bench.loops.planted import BASE, Planted, loop, luck, study

AXES = [
    {"name": "pressure", "crossed": True, "values": [{"name": "1"}]},
    {"name": "tools", "crossed": True, "values": [{"name": "fast"}]},
]
PANEL = BASE["panels"][0] | {"n": [16]}
NAMES = {"vllm-opt": 0, "thunderagent": 1, "las-fairness": 2}
SYSTEMS = [{"name": s, "system": s} for s in NAMES]


def place(gains, noise=(0.0, 0.0, 0.0), seeds=8, minutes=lambda _: 4.0):
    """The row of a map of one place: steps/min of none, ThunderAgent, LAS, alternating by a noise of each."""

    def rate(config):
        k = NAMES[config.system]
        return 100.0 * luck(config) * gains[k] * math.exp(noise[k] * (-1) ** config.seed)

    scales = {"small": BASE["scales"]["small"] | {"seeds": seeds}}
    made = loop(axes=AXES, panels=[PANEL], systems=SYSTEMS, reference="vllm-opt", scales=scales)
    (row,) = winners(study(Planted(rate, minutes), made))
    return row


@pytest.mark.parametrize(
    ("changes", "clear"),
    [
        ({"gains": (1.0, 1.4, 1.2)}, True),
        ({"gains": (1.0, 1.2, 1.0), "noise": (0.6, 0.0, 0.0)}, False),  # told from one, not from none
        ({"gains": (1.0, 1.01, 0.8)}, False),  # a lead of 1 %
        ({"gains": (1.0, 1.4, 1.2), "seeds": 2}, False),  # exploratory
    ],
)
def test_a_lead_is_clear_where_it_is_told_from_all(changes, clear):
    row = place(**changes)
    assert row["winner"] == "thunderagent"
    assert row["clear"] is clear


def test_a_tester_s_case_two_seeds_ahead_of_the_second_only():
    row = place((1.0, 1.05, 1.02), noise=(0.05, 0.0, 0.0), seeds=2)
    assert not row["clear"]
    assert row["p"] > 0.05


def test_who_the_winner_is_not_told_from_is_named():
    row = place((1.0, 1.4, 1.39), noise=(0.0, 0.05, 0.0))
    assert (row["winner"], row["alike"]) == ("thunderagent", "las-fairness")
    assert place((1.0, 1.4, 1.2))["alike"] == ""


def test_places_stand_by_their_axes_and_settings_of_one_place_side_by_side():
    rows = [
        {"map": "usual", "x": f"pressure {x}", "y": f"tools {y}", "winner": "a", "gain": gain, "clear": clear,
         "second": "b", "alike": alike, "unknown": ""}
        for x, y, gain, clear, alike in (
            ("1", "fast", 1.019, False, ""), ("2", "fast", 1.5, True, ""),
            ("2", "slow", 1.5, False, "b, c, d"),
        )
    ]  # fmt: skip
    rows += [rows[1] | {"map": name} for name in ("release off", "tier host")]
    usual, changed = layout(pd.DataFrame(rows))
    assert (usual.xs, usual.ys) == (["1", "2"], ["fast", "slow"])
    assert list(zip(usual.rows.i, usual.rows.j, strict=True)) == [(0, 0), (1, 0), (1, 1)]
    assert (changed.xs, changed.ys) == (["release off", "tier host"], ["pressure 2, tools fast"])
    said = [words(row) for row in usual.rows.itertuples()]
    assert said == ["nobody gains\n(best x1.02)", "a\nx1.50", "a\nx1.50\n~ b and 2 more"]


def test_who_has_no_full_window_is_named_and_nobody_leads_it():
    row = place((1.0, 1.4, 9.0), minutes=lambda c: 1.5 if c.system == "las-fairness" else 4.0)
    assert (row["winner"], row["unknown"], row["clear"]) == ("thunderagent", "las-fairness", False)


def test_many_places_are_tested_together():
    """A lead that is clear alone is not among four of which the others show nothing."""

    def rate(config):
        here = config.knobs.get("engine.swap_scale") == "1.01"
        gain = 1.3 * math.exp(0.24 * (-1) ** config.seed) if here and config.system == "thunderagent" else 1.0
        return 100.0 * gain * math.exp(0.001 * (config.seed % 3))

    def found(places):
        values = [
            {"name": f"{k}", "knobs": {"engine.swap_scale": f"{1 + k / 100}"}} for k in range(1, places + 1)
        ]
        axes = [{"name": "pressure", "crossed": True, "values": values}, AXES[1]]
        made = loop(axes=axes, panels=[PANEL], systems=SYSTEMS[:2], reference="vllm-opt")
        return next(row for row in winners(study(Planted(rate), made)) if row["pressure"] == "1")

    assert found(1)["clear"]
    among = found(4)
    assert not among["clear"]
    assert among["lead_low"] > 1.0


def test_the_map_says_itself_that_it_is_exploratory():
    rows = pd.DataFrame([place((1.0, 1.05, 1.02), seeds=2)])
    said = exploratory(tabulate({"settle": rows}))
    assert said == "exploratory: 2 seeds, no lead is tested"
    figure = FIGURE.paint({"settle": rows}, rows)
    texts = [t.get_text() for legend in figure.legends for t in legend.get_texts()]
    assert said in texts
    assert "(exploratory)" in figure.axes[0].get_title()
    assert exploratory(rows.assign(seeds=8)) == ""


def test_shares_of_an_open_loop_are_of_the_programs_in_it():
    panel = {k: v for k, v in PANEL.items() if k != "n"} | {"rates": [0.045], "in_system": 16}
    made = loop(panels=[panel])
    assert choices(made.system("cap"), made.panels[0]) == ["4", "8", "16"]

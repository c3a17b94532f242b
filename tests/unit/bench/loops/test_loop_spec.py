from pathlib import Path

import pytest

from bench.errors import UsageError
from bench.loops.parsing import parse
from bench.reproduce import experiments, load
from tests.unit.bench.loops.planted import BASE, loop

LOOPS = [name for name in experiments() if load(name)[0]["kind"] == "loop"]
OPEN = {k: v for k, v in BASE["panels"][0].items() if k != "n"}
SLOW = {"name": "slow", "parameters": {"a": "1"}}
AXES = [
    {"name": "pressure", "crossed": True, "values": [{"name": "1", "n": [4]}, {"name": "2", "n": [8]}]},
    {"name": "tools", "crossed": True, "values": [{"name": "fast"}, SLOW]},
    {"name": "loop", "values": [{"name": "closed"}, {"name": "open", "rates": [0.5], "in_system": 8}]},
]  # fmt: skip


def claim(**changes):
    given = {"id": "c", "statement": "s", "kind": "ratio", "panels": ["a"], "top": "double", "bottom": "base"}
    return loop(claims=[given | changes])


@pytest.mark.parametrize("name", LOOPS)
def test_experiments_parse_and_have_a_small_scale(name):
    made = parse(*load(name))
    assert "small" in made.scales
    assert made.name == name
    assert len({c.id for c in made.claims}) == len(made.claims)
    for scale in made.scales.values():
        assert made.chosen(scale)
        assert scale.cost


def test_figures_five_and_ten_are_about_the_runs_of_figure_four():
    four, five, ten = (parse(*load(f"thunderagent:fig{n}")) for n in (4, 5, 10))
    assert four.panels == five.panels == ten.panels
    assert four.systems == five.systems


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"panels": [{**BASE["panels"][0], "n": []}]}, "give n .* or rates"),
        ({"panels": [{**BASE["panels"][0], "trace": "weka"}]}, "a workload or a trace"),
        ({"panels": [{**BASE["panels"][0], "systems": ["bas"]}]}, "unknown system 'bas': did you mean base"),
        ({"panels": [{**BASE["panels"][0], "paper": {"hit": {"base": [1, 2]}}}]}, "base has 2 values of hit"),
        ({"panels": [{**BASE["panels"][0], "labl": "A"}]}, r"panels\[0\]: unknown field 'labl'"),
        ({"reference": "other"}, "unknown system 'other'"),
        ({"panels": [{**OPEN, "rates": [0.5]}]}, "panel a: cap is tuned by shares .* give in_system"),
        (
            {"axes": [{"name": "loop", "values": [{"name": "open", "rates": [0.5]}]}]},
            "axis loop, value open: cap is tuned by shares",
        ),
        ({"panels_of": "fig99"}, "no experiment fig99 beside it"),
    ],
)
def test_a_wrong_file_is_named_with_the_field(changes, words):
    with pytest.raises(UsageError, match=rf"loop\.toml: .*{words}"):
        loop(**changes)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"kind": "ratios"}, "did you mean ratio"),
        ({"top": "triple"}, "unknown system 'triple'"),
        ({"quantity": "steps"}, "did you mean steps_per_min"),
        ({"panels": ["b"]}, "unknown panel 'b'"),
        ({"panels": []}, "give panels or where"),
        ({"where": {"pressure": "2"}}, "unknown axis 'pressure'"),
    ],
)
def test_a_wrong_claim_is_named(changes, words):
    with pytest.raises(UsageError, match=rf"claim c: .*{words}"):
        claim(**changes)


def test_axes_are_crossed_or_leave_their_first_value_alone():
    made = loop(axes=AXES)
    laid = made.chosen(made.scale("small"))
    assert len(laid) == 4 + 4
    assert [p.at["loop"] for p in laid] == ["closed"] * 4 + ["open"] * 4
    assert {p.name for p in laid[:2]} == {"a|1|fast|closed", "a|1|slow|closed"}
    assert laid[1].parameters == {"stagger": "1", "a": "1"}
    assert (laid[-1].n, laid[-1].rates) == ((), (0.5,))
    assert laid[0].n == (4,)


def test_scales_restrict_axes():
    small = BASE["scales"]["small"]
    scales = {"small": small | {"sides": {"pressure": ["2"]}, "only": {"tools": ["slow"]}}}
    laid = (made := loop(axes=AXES, scales=scales)).chosen(made.scale("small"))
    assert [p.name for p in laid] == ["a|1|slow|closed", "a|2|slow|closed", "a|2|slow|open"]
    scales = {"small": small | {"crossed": ["tools"]}}
    laid = (made := loop(axes=AXES, scales=scales)).chosen(made.scale("small"))
    assert len(laid) == 2 + 2 + 2


def test_places_are_thinned_evenly_with_the_papers_values():
    panel = BASE["panels"][0] | {"n": [1, 2, 3, 4, 5], "paper": {"hit": {"base": [0.1, 0.2, 0.3, 0.4, 0.5]}}}
    made = loop(panels=[panel], scales={"small": BASE["scales"]["small"] | {"places": 3}})
    (thin,) = made.chosen(made.scale("small"))
    assert thin.places == (1.0, 3.0, 5.0)
    assert thin.paper["hit"]["base"] == (0.1, 0.3, 0.5)


def test_unknown_scale():
    with pytest.raises(UsageError, match="did you mean small"):
        loop().scale("smal")


def test_every_loop_experiment_is_beside_its_paper():
    assert all(Path(load(name)[1]).parent.name in ("thunderagent", "kv") for name in LOOPS)


def test_a_scale_can_leave_systems_out():
    made = loop(scales={"small": BASE["scales"]["small"] | {"without": ["double"]}})
    assert [p.systems for p in made.chosen(made.scale("small"))] == [("base", "same", "cap")]
    with pytest.raises(UsageError, match=r"scales\.small: unknown system 'dubble': did you mean double"):
        loop(scales={"small": BASE["scales"]["small"] | {"without": ["dubble"]}})

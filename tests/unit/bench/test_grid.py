import re
from pathlib import Path

import pytest

from bench.config import RunConfig, programs_of_each
from bench.errors import UsageError
from bench.grid import Grid, rates, variations, varied, words


def grid(**given):
    base = RunConfig("", "", n=5, seed=3, out=Path("r"), knobs={"engine.kv_blocks": "9000"})
    return Grid(**{"base": base, "systems": ["atlas", "plas"], "workloads": [(None, "mcts")]} | given)


def test_steps_are_exact_and_each_is_there_once():
    assert rates(["0.5", "0.8"]) == [0.5, 0.8]
    assert rates(["0.2:1.0:5"]) == [0.2, 0.4, 0.6, 0.8, 1.0]
    assert rates(["0.1:0.7:7"]) == [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7]
    assert rates(["0.4", "0.2:0.6:3"]) == [0.4, 0.2, 0.6]
    assert len(rates(["0.001:0.002:1000"])) == 1000
    assert rates(["1:3:2", "1e-3"]) == [1.0, 3.0, 0.001]


@pytest.mark.parametrize(
    "word", ["", "x", "0", "-1", "nan", "inf", "1e999", "1e-999", "1:2", "1:2:1", "1:2:x", "1:2:-3", "2:1:3",
             "1:1:2", "0:1:3", "1:2:3:4", "1:2:5000", "1:2:²"],
)  # fmt: skip
def test_rates_that_are_none(word):
    with pytest.raises(UsageError, match="--rate"):
        rates([word])


def test_cells_go_seed_by_seed_with_systems_interleaved():
    found = grid(rates=[0.2, 0.4], seeds=2, vary={"scheduler.beta": ["1", "2"]}).cells()
    assert [c.seed for c in found] == [3] * 8 + [4] * 8
    assert [c.system for c in found] == ["atlas", "plas"] * 8
    assert [c.rate for c in found[:8]] == [0.2] * 4 + [0.4] * 4
    assert [c.knobs["scheduler.beta"] for c in found[:4]] == ["1", "1", "2", "2"]
    assert {(c.n, c.knobs["engine.kv_blocks"]) for c in found} == {(5, "9000")}
    assert len({tuple(c.words()) for c in found}) == len(found) == grid(rates=[1, 2]).points() * 4


def test_what_can_be_varied():
    base = RunConfig("atlas", "mcts")
    changed = varied(
        base, {"replicas": "2", "router": "round-robin", "branch": "3", "engine.kv_blocks": "10"}
    )
    assert (changed.replicas, changed.router) == (2, "round-robin")
    assert (changed.parameters, changed.knobs) == ({"branch": "3"}, {"engine.kv_blocks": "10"})
    assert varied(base, {"concurrency": "4"}).concurrency == 4


@pytest.mark.parametrize(
    ("word", "says"),
    [("beta", "NAME=VALUE"), ("=1", "NAME=VALUE"), ("a=1,,2", "NAME=VALUE"), ("a=", "NAME=VALUE")],
)
def test_variations_that_are_none(word, says):
    with pytest.raises(UsageError, match=says):
        variations([word])


def test_contradictions_are_refused():
    with pytest.raises(UsageError, match="given twice"):
        variations(["a=1", "a=2"])
    with pytest.raises(UsageError, match="both --knob and --vary"):
        varied(grid().base, {"engine.kv_blocks": "10"})
    with pytest.raises(UsageError, match="both -p and --vary"):
        varied(RunConfig("atlas", "mcts", parameters={"branch": "2"}), {"branch": "3"})
    with pytest.raises(UsageError, match="whole numbers"):
        varied(grid().base, {"replicas": "two"})
    with pytest.raises(UsageError, match="contradict"):
        grid(rates=[1.0], vary={"concurrency": ["2"]}).cells()
    with pytest.raises(UsageError, match="at least 1"):
        grid(seeds=0).cells()
    with pytest.raises(UsageError, match=re.escape("that makes 200,000 cells")):
        grid(rates=[i / 7 for i in range(1, 101)], seeds=1_000).cells()


def test_the_command_line_says_it_all():
    asked = grid(
        rates=[0.1, 1 / 3], gpus=["a100", "h100"], seeds=2, workloads=[(None, "mcts"), ("weka", "t.json")],
        vary={"scheduler.beta": ["1", "2"]},
    )  # fmt: skip
    assert words(asked) == [
        "bench", "sweep", "--system", "atlas", "--system", "plas", "--workload", "mcts", "--workload",
        "weka@t.json", "--rate", "0.1", "--rate", "0.3333333333333333", "--gpu", "a100", "--gpu", "h100",
        "--vary", "scheduler.beta=1,2", "--seeds", "2", "--n", "5", "--seed", "3", "--out", "r", "--knob",
        "engine.kv_blocks=9000",
    ]  # fmt: skip
    assert rates(words(asked)[11:14:2]) == [0.1, 1 / 3]


def test_a_workload_may_have_programs_and_parameters_of_its_own():
    base = RunConfig(
        "", "", n=32, parameters={"token_scale": "1/16", "mcts.tool_s": "0.1", "mcts.token_scale": "1"}
    )
    found = Grid(base, ["atlas"], [(None, "mcts:lats"), (None, "react")], counts={"mcts": 4})
    first, second = found.cells()
    assert (first.n, first.parameters) == (4, {"token_scale": "1", "tool_s": "0.1"})
    assert (second.n, second.parameters) == (32, {"token_scale": "1/16"})
    assert words(found)[:2] == ["bench", "sweep"]
    assert "mcts=4,32" in words(found)
    mixed = Grid(base, ["atlas"], [(None, "mixed")])
    assert mixed.cells()[0].parameters["mcts.tool_s"] == "0.1"  # its own name for it


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (None, ({}, None, None)),
        ("32", ({}, 32, None)),
        ("900s", ({}, None, 900.0)),
        ("mcts=4,32", ({"mcts": 4}, 32, None)),
        ("mcts=4,react=9", ({"mcts": 4, "react": 9}, None, None)),
        ("mcts=4,60s", ({"mcts": 4}, None, 60.0)),
    ],
)
def test_programs_of_each_workload(text, found):
    assert programs_of_each(text) == found


@pytest.mark.parametrize("text", ["mcts=0", "mcts=x", "mcts=4,mcts=5", "3,4", "x", "=4,"])
def test_programs_that_are_none(text):
    with pytest.raises(UsageError, match="--n takes"):
        programs_of_each(text)

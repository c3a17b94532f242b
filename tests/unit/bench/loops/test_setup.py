"""Who is there at the start, what retention is told of prices, and the search for a limit."""

import math
from dataclasses import replace
from pathlib import Path

import pytest

from bench.config import RunConfig
from bench.loops.setup import Search, at_start, prices
from bench.loops.spec import Panel, System
from bench.loops.window import numbers, read, window_of
from bench.run import run
from systems.latency.catalog import latency_for
from systems.latency.scaled import SCALES
from systems.latency.transfer import transfer_for

PANEL = Panel("a", "A", "swe:mini", n=(16, 32, 64))
CAP = System("cap", "program-cap", tune="gate.programs", shares=(0.5, 1.0))


@pytest.mark.parametrize(
    ("knobs", "expected"), [({}, 16), ({"gate.programs": "6"}, 6), ({"gate.programs": "64"}, 16)]
)
def test_who_waits_in_the_line_of_a_limit_is_new(knobs, expected):
    assert at_start(16.0, knobs) == expected


SMALL = RunConfig(
    "vllm-opt", "swe:mini", concurrency=6, n=60, seed=5, model="llama-3.1-8b", gpu="h100",
    parameters={"stagger": "1", "calls": "12", "tool_mean_s": "1"},
    knobs={"engine.kv_blocks": "1800", "engine.record_decisions": "false"},
)  # fmt: skip


def rate(config: RunConfig, out: Path, aged: int) -> float:
    """Steps/min in a window in which the loop is full; ``aged`` programs start in the middle of a life."""
    config = replace(config, out=out, parameters={**config.parameters, "at_start": str(aged)})
    log = read(run(config).folder)
    window = window_of(log.programs, 20.0, 100.0)
    assert window.covered == 1.0
    return numbers(log, window, 1800 * 16)["steps_per_min"]


def test_a_limit_in_a_larger_loop_serves_what_a_loop_of_its_size_serves(tmp_path):
    alone = rate(SMALL, tmp_path, 6)
    limit = replace(
        SMALL, system="program-cap", concurrency=14, n=68, knobs={**SMALL.knobs, "gate.programs": "6"}
    )
    assert rate(limit, tmp_path, at_start(14.0, limit.knobs)) == pytest.approx(alone, rel=0.02)


def test_prices_are_of_computing_or_of_moving_back():
    computed = prices("llama-3.1-8b", "h100", {})
    slower = prices("llama-3.1-8b", "h100", {f"latency.{part}": "2" for part in SCALES})
    assert all(float(slower[k]) == pytest.approx(2 * float(v), rel=1e-3) for k, v in computed.items())
    moved = prices("llama-3.1-8b", "h100", {"engine.host_tier": "true"})
    assert moved["retention.token2_s"] == "0"
    seconds = float(moved["retention.token_s"]) * 16_384
    assert seconds == pytest.approx(
        transfer_for("llama-3.1-8b", "h100", batched=False).seconds(1024), rel=1e-3
    )
    slow = prices("llama-3.1-8b", "h100", {"engine.host_tier": "true", "engine.swap_scale": "3"})
    assert float(slow["retention.token_s"]) == pytest.approx(3 * float(moved["retention.token_s"]), rel=1e-3)
    step = latency_for("llama-3.1-8b", "h100").step([(2048, 0)], 0, 0)
    assert float(computed["retention.token_s"]) * 2048 == pytest.approx(step, rel=0.5)


def searched(true, values=("16", "32", "48", "64")):
    """A search that is told the score of each value; all it has tried."""
    search, tried = Search(CAP, list(values)), []
    while search.asked:
        tried += search.asked
        search.told({value: true(float(value)) for value in search.asked})
    return search, tried


def test_each_place_has_the_best_limit_that_is_not_above_it():
    search, tried = searched(lambda v: -abs(v - 33))
    assert search.best(PANEL) == {16: "16", 32: "32", 64: "32"}
    assert tried == ["16", "32", "48", "64"]


def test_where_the_lowest_limit_is_best_lower_ones_are_tried():
    search, tried = searched(lambda v: -abs(math.log(v / 6)))
    assert tried == ["16", "32", "48", "64", "11", "8", "6", "4"]
    assert set(search.best(PANEL).values()) == {"6"}
    search, tried = searched(lambda v: -v)
    assert tried[-1] == "1"


def test_of_limits_that_score_alike_the_highest_is_taken():
    search, _ = searched(lambda v: min(v, 32.0))
    assert search.best(PANEL) == {16: "16", 32: "32", 64: "64"}


def test_an_explicit_list_is_neither_extended_nor_cut():
    knob = System("x", "thunderagent", tune="gate.dt", values=(1.0, 5.0))
    search = Search(knob, ["1", "5"])
    search.told({"1": 2.0, "5": 1.0})
    assert not search.asked
    assert search.best(replace(PANEL, n=(), rates=(0.5,))) == {0.5: "1"}

"""Variations of a tiny run: paired, deterministic, one part at a time."""

import pytest

from bench import sensitivity as module
from bench.cells import Failure
from bench.config import RunConfig
from bench.errors import Exit, MissingError, UsageError
from bench.sensitivity import METRICS, PARTS, Side, Variation, seeds_of, sensitivity, variations
from bench.verdicts import GATES
from tests.unit.bench.simulated import group, simulated

WORDS = {"system": "mlfq", "workload": "chatbot", "n": 4, "rate": 4.0, "parameters": {"token_scale": "1/8"}}


def config(seed=1, **words):
    return RunConfig(**(WORDS | {"seed": seed} | words))


def runs(seeds=(1,), **words):
    return group([simulated(config(seed, **words)) for seed in seeds])


@pytest.fixture
def run(monkeypatch):
    """Runs cells in this process, and remembers what it was asked."""

    def answer(configs):
        answer.asked += configs
        return [simulated(one) for one in configs]

    answer.asked = []
    monkeypatch.setattr(module, "cells_of", list)
    return answer


def row(found, name):
    (only,) = (r for r in found["rows"] if r["name"] == name)
    return only


def test_every_part_goes_both_ways():
    names = [v.name for v in variations()]
    assert len(set(names)) == 2 * len(PARTS) == 10
    assert {"prefill x 0.85", "PCIe x 1.15"} < set(names)
    assert set(GATES[:2]) < set(METRICS)


@pytest.mark.parametrize(
    ("part", "words", "knob", "value"),
    [
        ("decode", {}, "latency.decode", "1.15"),
        ("prefill", {"latency.prefill": "2"}, "latency.prefill", "2.3"),
        ("KV blocks", {}, "engine.kv_scale", "1.15"),
        ("KV blocks", {"engine.kv_scale": "0.5"}, "engine.kv_scale", "0.575"),
        ("KV blocks", {"engine.kv_blocks": "1000"}, "engine.kv_blocks", "1150"),
        ("PCIe", {"engine.swap_scale": "2"}, "engine.swap_scale", "2.3"),
    ],
)
def test_a_factor_comes_on_top_of_the_runs_own(part, words, knob, value):
    one = config(knobs=words)
    made = {"identity": {"transfer": {"scale": float(words.get("engine.swap_scale", 1))}}}
    varied = Variation(part, 1.15).of(one, made)
    assert varied.knobs == {**words, knob: value}
    assert varied.out == one.out / module.FOLDER
    assert (varied.seed, varied.parameters) == (one.seed, one.parameters)


def test_a_tiny_run_is_varied_deterministically_on_the_same_programs(run, monkeypatch):
    base = runs((1, 2))
    found = sensitivity(base, [1, 2], run)
    assert len(run.asked) == 10 * 2
    monkeypatch.setattr(module, "variations", lambda: [Variation("decode", 1.15)])
    assert sensitivity(base, [1, 2], run)["rows"] == [row(found, "decode x 1.15")]
    slow, fast = (row(found, f"per-step overhead x {f}")["effects"][METRICS[0]] for f in (1.15, 0.85))
    assert fast["ratio"] < 1 < slow["ratio"]
    assert slow["low"] < slow["ratio"] < slow["high"]
    assert all(r["why"] == "" for r in found["rows"])  # mlfq swaps, so PCIe counts
    p95 = row(found, "decode x 1.15")["effects"]["program.response.p95"]
    assert (p95["ratio"], "n too small" in p95["why"]) == (None, True)


def test_one_seed_has_a_ratio_and_no_interval(run):
    found = sensitivity(runs(), [1], run)
    effect = row(found, "per-step overhead x 1.15")["effects"][METRICS[0]]
    assert effect["ratio"] > 1.0
    assert (effect["low"], effect["why"]) == (None, "one seed, no interval")


def test_pcie_does_not_apply_where_nothing_is_moved(run):
    found = sensitivity(runs(system="vllm-opt"), [1], run)
    assert len(run.asked) == 8
    assert row(found, "PCIe x 0.85")["why"].startswith("n/a: this system moves no KV")


def test_other_programs_are_no_pair(run, monkeypatch):
    base = runs()
    monkeypatch.setattr(module, "variations", lambda: [Variation("KV blocks", 0.85)])
    other = simulated(config(seed=2))
    found = sensitivity(base, [1], lambda configs: [other for _ in configs])
    assert found["rows"][0]["why"] == "n/a: other programs fit (seed 1)"


def test_a_variation_that_cannot_run_does_not_stop_the_others(monkeypatch):
    monkeypatch.setattr(module, "variations", lambda: [Variation("KV blocks", 0.85)])
    found = sensitivity(runs(), [1], lambda cs: [Failure(c, Exit.USAGE, "too long\nmore") for c in cs])
    assert found["rows"][0]["why"] == "could not be run: too long"
    with pytest.raises(module.Stopped, match="full") as error:
        sensitivity(runs(), [1], lambda cs: [Failure(c, Exit.MISSING, "disk full") for c in cs])
    assert error.value.exit_code == MissingError.exit_code


def test_more_seeds_than_there_are_run_the_base_too(run, monkeypatch):
    monkeypatch.setattr(module, "variations", lambda: [Variation("decode", 1.15)])
    base = runs()
    assert seeds_of(base, None) == [1]
    sensitivity(base, seeds_of(base, 2), run)
    assert [(c.seed, "latency.decode" in c.knobs) for c in run.asked] == [(2, False), (1, True), (2, True)]


def test_a_result_that_is_another_run_by_now_is_refused():
    base = runs()
    base.first.summary["cell"] = "0123456789abcdef"
    with pytest.raises(UsageError, match="cannot be made again"):
        Side.of(base, [1])

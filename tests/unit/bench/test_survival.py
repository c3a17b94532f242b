"""A comparison that hinges on one part of the simulation, and what is said of it."""

import pytest

from bench import sensitivity as parts
from bench import survival as module
from bench.compare import compare
from bench.config import RunConfig
from bench.sensitivity import Variation
from bench.survival import survival
from bench.verdicts import Question
from tests.unit.bench.simulated import LATENCY, group, simulated

CLOSE = 0.11
"""Without a prefix cache latency is 11.9 % higher on these programs; with prefill 15 % cheaper, 10.2 %."""
VARIED = [Variation("prefill", 0.85), Variation("decode", 1.15), Variation("PCIe", 1.15)]


def runs(seeds=range(1, 9), **knobs):
    words = {"system": "vllm-opt", "workload": "chatbot", "n": 12, "rate": 2.0}
    return group([simulated(RunConfig(**words, seed=seed, knobs=knobs)) for seed in seeds])


@pytest.fixture(scope="module")
def base():
    return runs()


@pytest.fixture(scope="module")
def new():
    return runs(**{"engine.prefix_cache": "false"})


@pytest.fixture(autouse=True)
def few(monkeypatch):
    monkeypatch.setattr(module, "variations", lambda: VARIED)
    for place in (module, parts):
        monkeypatch.setattr(place, "cells_of", list)


def run(configs):
    return [simulated(config) for config in configs]


def test_a_verdict_that_hinges_on_the_cost_of_prefill_does_not_survive(base, new):
    question = Question(gates=(LATENCY,), threshold=CLOSE)
    found = compare(base, new, question)
    assert found["outcome"] == "worse"
    lasting = survival(base, new, found, question, run)
    assert lasting["overall"]["survives"] == "no"
    assert list(lasting["overall"]["changed"]) == ["prefill x 0.85"]
    assert lasting["metrics"][LATENCY]["changed"].keys() == {"prefill x 0.85"}
    cheap, _, pcie = lasting["rows"]
    assert cheap["metrics"][LATENCY]["effect"] < 1 + CLOSE
    assert pcie["why"].startswith("n/a: either side moves no KV")
    assert (lasting["tested"], lasting["failed"]) == (2, [])


def test_a_verdict_far_from_its_threshold_survives_and_few_seeds_have_none(base, new, monkeypatch):
    monkeypatch.setattr(module, "variations", lambda: VARIED[:1])
    question = Question(gates=(LATENCY,), threshold=0.02)
    lasting = survival(base, new, compare(base, new, question), question, run)
    assert (lasting["overall"]["survives"], lasting["overall"]["changed"]) == ("yes", {})
    few = [group([g.cells[1], g.cells[2]]) for g in (base, new)]
    lasting = survival(*few, compare(*few, question), question, run)
    assert lasting["overall"] == {"verdict": "exploratory", "survives": "n/a", "changed": {}}


def test_a_side_that_cannot_be_varied_is_said(base, new, monkeypatch):
    question = Question(gates=(LATENCY,))
    found = compare(base, new, question)
    monkeypatch.setattr(module, "variations", lambda: VARIED[:1])
    monkeypatch.setattr(module, "cells_of", lambda _: "no room")
    lasting = survival(base, new, found, question, lambda configs: [None for _ in configs])
    assert lasting["rows"][0]["why"] == "could not be run: no room"
    assert (lasting["overall"]["survives"], lasting["tested"]) == ("n/a", 0)
    assert lasting["failed"] == ["prefill x 0.85"]


def test_varied_cells_of_other_programs_do_not_count(base, new, monkeypatch):
    question = Question(gates=(LATENCY,))
    found = compare(base, new, question)
    monkeypatch.setattr(module, "variations", lambda: VARIED[:1])
    swapped = [*base.cells.values()]
    monkeypatch.setattr(module, "cells_of", lambda _: swapped[1:] + swapped[:1])
    lasting = survival(base, new, found, question, lambda configs: [None for _ in configs])
    assert lasting["rows"][0]["why"] == "n/a: other programs fit (seed 1-8)"
    assert (lasting["tested"], lasting["failed"]) == (0, [])

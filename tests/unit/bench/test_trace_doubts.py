"""Data that somebody made up are called odd, real ones are not."""

from pathlib import Path

import numpy as np
import pytest

from bench.trace_doubts import doubts
from bench.trace_survey import survey
from workloads.base import ProgramSet
from workloads.load import load
from workloads.replay import replay_spec
from workloads.script import CallOp, Script

DATA = Path(__file__).parents[4] / "shared" / "data"
N = 200


def recorded(prompts, outputs, arrivals=None, calls=1):
    """A trace of ``calls`` calls a program that share nothing."""
    times = np.random.default_rng(1).exponential(2.0, len(prompts)).cumsum() if arrivals is None else arrivals
    specs = []
    for i in range(0, len(prompts), calls):
        ops = [
            CallOp(
                "",
                k,
                (("", k - 1),) if k else (),
                ((10 * (i + k) + 1, int(p)),),
                10 * (i + k) + 2,
                int(o),
                int(p),
            )
            for k, (p, o) in enumerate(zip(prompts[i : i + calls], outputs[i : i + calls], strict=True))
        ]
        specs.append(replay_spec(len(specs), "made up", Script(ops), float(times[i])))
    return ProgramSet(specs, "made up", "", {"format": "made up"}, None, read=len(specs))


def real(n=N, seed=2):
    rng = np.random.default_rng(seed)
    return np.ceil(rng.lognormal(6, 1.3, n)), np.ceil(rng.weibull(1.3, n) * 300)


def rules(programs):
    return {found["rule"] for found in doubts(survey(programs))}


def test_lengths_of_a_long_tail_raise_nothing_but_the_missing_prefixes():
    for seed in range(20):
        assert rules(recorded(*real(seed=seed))) == {"no sharing"}


@pytest.mark.parametrize(
    ("prompts", "rule"),
    [
        (np.full(N, 1024), "constant lengths"),
        (np.where(np.arange(N) == 3, 512, 1024), "constant lengths"),
        (10 * np.ceil(real()[0] / 10), "round numbers"),
        (64 * np.ceil(real()[0] / 64), "round numbers"),
        (np.random.default_rng(4).integers(100, 4000, N), "uniform lengths"),
    ],
)
def test_invented_lengths(prompts, rule):
    assert rule in rules(recorded(prompts, real()[1]))
    assert rule in rules(recorded(real()[0], prompts))


def test_uniform_data_are_hardly_ever_missed_and_long_tails_never_taken_for_them():
    rng = np.random.default_rng(6)
    found = [rules(recorded(rng.integers(1, 2000, N), real()[1])) for _ in range(30)]
    assert sum("uniform lengths" in rules_ for rules_ in found) >= 26
    assert not any("uniform lengths" in rules(recorded(*real(seed=s))) for s in range(20))


def test_a_metronome_and_a_coarse_clock():
    steady = np.arange(N) * 2.0
    assert "evenly spaced arrivals" in rules(recorded(*real(), arrivals=steady))
    ticks = 3.0 * np.floor(np.random.default_rng(1).exponential(0.3, N).cumsum() / 3.0)
    assert "coarse clock" in rules(recorded(*real(), arrivals=ticks))
    assert "no arrivals" in rules(recorded(*real(), arrivals=np.zeros(N)))


def test_programs_of_several_calls_that_never_continue_each_other():
    saw = doubts(survey(recorded(*real(), calls=4)))
    assert [found["rule"] for found in saw] == ["no sharing"]
    assert "50 programs of several calls" in saw[0]["saw"]


def test_copies_under_other_names():
    prompts, outputs = (np.tile(v[:40], 5) for v in real())
    assert "identical sessions" in rules(recorded(prompts, outputs, calls=4))


def test_few_calls_and_generators_are_not_judged():
    assert rules(recorded(np.full(9, 100), np.full(9, 100))) == set()
    assert rules(load("mcts", n=5)) == set()


@pytest.mark.skipif(not DATA.exists(), reason="no ../shared/data")
def test_real_data_look_real_and_the_coarse_clock_of_mooncake_is_seen():
    assert rules(load(str(DATA / "weka"))) == set()
    assert rules(load(str(DATA / "sharegpt"))) == set()
    assert rules(load(str(DATA / "mooncake"), n=600)) == {"coarse clock"}

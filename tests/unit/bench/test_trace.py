import numpy as np
import pytest

from bench.config import RunConfig
from bench.plan import load_programs
from bench.trace import residual_life, stats


def test_residual_life_of_known_laws():
    rng = np.random.default_rng(1)
    assert residual_life(rng.uniform(0, 100, 4000), "calls")["verdict"] == "falls"
    assert residual_life(rng.pareto(2.5, 4000) + 1, "calls")["verdict"] == "rises"
    assert residual_life(rng.uniform(0, 1, 20), "calls")["verdict"] == "too few programs"


def test_residual_life_of_a_memoryless_law_is_seldom_called_anything_else():
    rng = np.random.default_rng(2)
    for n, wrong in ((100, 12), (700, 12), (20_000, 0)):
        verdicts = [residual_life(rng.exponential(1000, n), "tokens")["verdict"] for _ in range(100)]
        assert sum(v in ("rises", "falls") for v in verdicts) <= wrong, n
    assert verdicts.count("flat") >= 90


def test_residual_life_rows():
    got = residual_life(np.arange(1.0, 101.0), "calls")["rows"]
    assert got[0] == {
        "age": 0.0, "alive": 100.0, "mean_left": 50.5, "hazard": pytest.approx(0.1, abs=0.01),
        "error": pytest.approx(2.9, abs=0.01),
    }  # fmt: skip
    assert got[-1]["hazard"] == 1.0
    assert residual_life(np.empty(0), "calls")["rows"] == []


def test_stats_of_a_workload():
    got = stats(load_programs(RunConfig("", "mcts", n=20)))
    assert got["programs"] == 20
    assert {table["caveat"] for table in got["residual_life"]} == {""}
    assert got["calls"] == got["distributions"]["output tokens per call"]["n"]
    assert 0.9 < got["prefix"]["optimum"] < 1
    assert got["distributions"]["calls per program"]["p50"] > 20


def test_skipped_programs_are_a_caveat_of_residual_life():
    programs = load_programs(RunConfig("", "mcts", n=20))
    programs.skipped = {"prompt over the context": 2, "broken JSON": 1}
    for table in stats(programs)["residual_life"]:
        assert table["caveat"] == "3 skipped, so the longest sessions may be missing"

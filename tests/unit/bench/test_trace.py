import numpy as np
import pytest

from bench.config import RunConfig
from bench.offline import offline
from bench.plan import load_programs
from bench.trace import arrivals, prefix, residual_life, stats, stats_of
from bench.trace_page import page as html
from bench.trace_page import survival
from bench.trace_survey import NEW, PROMPT, survey
from workloads.base import ProgramSet, ProgramSpec


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


def test_own_and_other_hits_make_the_optimum_of_the_offline_walk():
    """Two ways to the same number: call by call here, one index there."""
    for name in ("react", "mcts:tot", "chatbot", "react:hotpot"):
        programs = load_programs(RunConfig("", name, n=15))
        found = survey(programs)
        assert found.optimum.sum() == offline(programs.programs).hit_tokens
        assert (found.own + found.values[NEW] <= found.values[PROMPT]).all()


def test_sharing_by_hand():
    """Two programs with the same first 100 tokens; the second call of each repeats its first."""

    async def agent(s):
        s.add((7, 100))
        await s.call(new=60, output=32)
        await s.call(new=10, output=5)

    specs = [ProgramSpec(i, "x", 1000 + i, agent) for i in range(2)]
    found = survey(ProgramSet(specs, "x", "", {}, None))
    assert found.values[NEW].tolist() == [160, 10, 160, 10]
    # 160 + 31 tokens of KV are there: 11 whole blocks of the 202 tokens' 12
    assert found.own.tolist() == [0, 176, 0, 176]
    assert found.others.tolist() == [0, 0, 96, 96]
    assert found.optimum.tolist() == [0, 176, 96, 176]
    bins = prefix(found)["bins"]
    assert [(b["up_to"], b["calls"], b["own"], b["others"]) for b in bins] == [
        (256.0, 4.0, 352 / 724, 192 / 724)
    ]


def test_arrivals_of_known_laws():
    rng = np.random.default_rng(3)
    poisson = arrivals(rng.exponential(2.0, 3000).cumsum())
    assert poisson["rate"] == pytest.approx(0.5, rel=0.06)
    assert poisson["ks_poisson"] < poisson["critical"]
    assert abs(poisson["cv"] - 1.0) < 4 * poisson["cv_error"]
    bursty = arrivals(rng.gamma(0.25, 8.0, 3000).cumsum())
    assert bursty["cv"] == pytest.approx(2.0, abs=4 * bursty["cv_error"])
    assert bursty["ks_poisson"] > bursty["critical"]
    assert arrivals(None) is None
    assert arrivals(np.zeros(9)) == {"n": 9, "span_s": 0.0}


def test_the_page_has_every_plot_and_needs_nothing_else():
    programs = load_programs(RunConfig("", "react", n=60))
    found = survey(programs)
    found.arrivals = np.random.default_rng(1).exponential(3.0, 60).cumsum()
    page = html(found, stats_of(found), "bench trace stats react")
    assert page.count("data:image/svg+xml") == 4
    assert "residual life" in page
    assert "http://" not in page.replace("http://www.w3.org", "")
    assert "https://" not in page


def test_curves_fall_from_one_and_keep_their_ends():
    values = np.random.default_rng(1).lognormal(3, 2, 5000)
    x, share = survival(values)
    assert len(x) <= 160
    assert (share[0], x[0], x[-1]) == (1.0, values.min(), values.max())
    assert (np.diff(share) < 0).all()
    assert share[-1] == pytest.approx(1 / 5000)

import math
from statistics import fmean, pstdev

import pytest

from workloads.base import WorkloadError
from workloads.parameters import Parameters
from workloads.random_streams import Stream, parse_dist
from workloads.tool_times import FAMILIES, TOP, heavy, mean_of, tool_times

N = 20_000
BASH = {"dist": "lognormal", "mu": 0.0, "sigma": 1.0}
EDIT = {"dist": "uniform", "low": 0.0, "high": 0.2}


def times(family="recorded", mean=0.0, scale=1.0, **tools):
    tools = tools or {"bash": BASH, "edit": EDIT}
    values = {
        "tool_share": dict.fromkeys(tools, 3.0) | ({"bash": 1.0} if "bash" in tools else {}),
        "tool_s": tools,
        "tool_family": family,
        "tool_mean_s": mean,
    }
    return tool_times(Parameters("swe:x", values), scale)


def drawn(tools, n=N):
    picks, lengths = Stream(1), Stream(2)
    return [tools.draw(picks, lengths) for _ in range(n)]


@pytest.mark.parametrize(
    ("table", "mean"),
    [
        (7.0, 7.0),
        ({"dist": "uniform", "low": 2, "high": 4}, 3.0),
        ({"dist": "exponential", "mean": 3.0}, 3.0),
        ({"dist": "exponential", "mean": 3.0, "max": 3.0}, 3.0 * (1 - math.exp(-1))),
        ({"dist": "lognormal", "mu": 1.0, "sigma": 0.5}, math.exp(1.125)),
        ({"dist": "quantiles", "at": {"0": 0, "25": 0, "100": 8}}, 3.0),
        ({"dist": "empirical", "p": {"1": 0.25, "9": 0.75}}, 7.0),
    ],
)
def test_a_mean_is_an_integral_that_knows_the_bounds(table, mean):
    assert mean_of(parse_dist(table, "x")) == pytest.approx(mean, rel=2e-3)


@pytest.mark.parametrize("family", [*FAMILIES, "recorded"])
@pytest.mark.parametrize("mean", [0.0, 2.0])
def test_every_family_has_the_same_mean_tool_by_tool(family, mean):
    tools = times(family, mean)
    recorded = 0.25 * math.exp(0.5) + 0.75 * 0.1
    wanted = mean or recorded
    assert tools.mean == pytest.approx(wanted, rel=2e-3)
    values = drawn(tools)
    assert abs(fmean(s for _, s in values) - wanted) <= 4 * pstdev([s for _, s in values]) / N**0.5
    edits = [s for name, s in values if name == "edit"]
    assert abs(len(edits) / N - 0.75) < 0.01
    assert abs(fmean(edits) - 0.1 * wanted / recorded) <= 4 * pstdev(edits) / len(edits) ** 0.5


def test_the_families_differ_in_what_elapsed_time_tells():
    def left_at(name, elapsed):
        """Mean remaining seconds of tools of mean 1 s that have run for ``elapsed``."""
        times = [FAMILIES[name](1.0).value(source) for source in [Stream(9)] for _ in range(N)]
        return fmean(t - elapsed for t in times if t > elapsed)

    assert left_at("heavy", 2.0) > 3.0
    assert left_at("exponential", 2.0) == pytest.approx(1.0, rel=0.1)
    assert left_at("deterministic", 0.95) < 0.1


def test_the_heavy_family_is_cut_where_it_says():
    values = [heavy(1.0).value(source) for source in [Stream(3)] for _ in range(N)]
    top = max(values)
    assert sum(v == top for v in values) / N == pytest.approx(1 - TOP, rel=0.3)
    assert 36 < top < 38
    assert 3.2 < pstdev(values) < 4.2


def test_scale_multiplies_what_is_recorded_and_tools_keep_their_names():
    assert times(scale=2.0).mean == pytest.approx(2 * times().mean)
    assert times("exponential", scale=2.0).mean == pytest.approx(2 * times().mean, rel=1e-3)
    assert {name for name, _ in drawn(times(), 100)} == {"bash", "edit"}


def test_another_family_leaves_which_tool_runs_alone():
    assert [n for n, _ in drawn(times(), 200)] == [n for n, _ in drawn(times("heavy"), 200)]


@pytest.mark.parametrize(
    ("family", "tools", "said"),
    [
        ("heavi", {}, "did you mean 'heavy'"),
        ("heavy", {"bash": 0.0}, "take no time"),
        ("heavy", {"bash": {"dist": "gamma", "shape": 2, "scale": 1}}, "swe:x: tool_s: .*gamma"),
        ("recorded", {"bash": {"dist": "gamma", "shape": 0, "scale": 1}}, "swe:x: tool_s: bash.shape"),
    ],
)
def test_bad_tools_are_refused(family, tools, said):
    with pytest.raises(WorkloadError, match=said):
        times(family, **tools)


def test_a_time_without_a_tool_and_tools_without_shares_are_refused():
    values = {
        "tool_share": {"bash": 1.0},
        "tool_s": {"bsh": 1.0},
        "tool_family": "recorded",
        "tool_mean_s": 0.0,
    }
    with pytest.raises(WorkloadError, match=r"tool_s\.bsh is no tool: did you mean 'bash'"):
        tool_times(Parameters("x", values), 1.0)
    with pytest.raises(WorkloadError, match="at least one tool"):
        tool_times(Parameters("x", {**values, "tool_share": {"bash": 0.0}}), 1.0)
    with pytest.raises(WorkloadError, match="a table of tool"):
        tool_times(Parameters("x", {**values, "tool_share": 3.0}), 1.0)

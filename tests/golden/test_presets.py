"""Every preset's programs against the numbers they were fitted to (workloads.md, the paper)."""

import math
from bisect import bisect_left
from functools import cache
from itertools import accumulate, pairwise
from statistics import NormalDist, fmean, median

import pytest

from workloads.chatbot import WORKLOAD as CHATBOT
from workloads.dryrun import dry_runs
from workloads.keys import key_of
from workloads.load import load

N = 1500


@cache
def dags(preset, n=N):
    return dry_runs(load(preset, n=n, seed=1).programs)


def calls(preset):
    return sorted(len(dag.calls) for dag in dags(preset))


def outputs(preset):
    return [call.output_tokens for dag in dags(preset) for call in dag.calls]


def quantile(values, p):
    return sorted(values)[int(p * len(values))]


def grown(dag):
    """New prompt tokens of each call of a one-thread program after the first."""
    return [b.prompt_tokens - a.prompt_tokens - a.output_tokens for a, b in pairwise(dag.calls)]


@pytest.mark.parametrize(
    ("preset", "mean", "tolerance"),
    [
        ("chatbot:v3_split", 3.87, 0.05),
        ("react:bfcl", 10.8, 0.03),
        ("react:bfcl-own", 10.8, 0.03),
        ("react:bfcl-wide", 10.75, 0.05),
        # 2, 3, 4, 5, 6 with hazards .068, .616, .393, .351, 1
        ("react:hotpot", 2 + 0.932 + 0.932 * 0.384 + 0.932 * 0.384 * 0.607 * (1 + 0.649), 0.03),
        ("react:tau", 12.2, 0.04),
        ("mapreduce:summarise", 8.0, 0.03),
    ],
)
def test_calls_per_program(preset, mean, tolerance):
    assert fmean(calls(preset)) == pytest.approx(mean, rel=tolerance)


@pytest.mark.parametrize(
    ("preset", "mean", "tolerance"),
    [
        ("chatbot:v3_split", 286.0, 0.05),
        ("chatbot:raw90k", 432.0, 0.05),
        ("react:bfcl", 34.14, 0.03),
        ("react:bfcl-wide", 34.14, 0.03),
        ("react:hotpot", 41.2, 0.03),
        ("react:tau", 78.3, 0.03),
    ],
)
def test_output_tokens_per_call(preset, mean, tolerance):
    assert fmean(outputs(preset)) == pytest.approx(mean, rel=tolerance)


def test_v3_split_has_the_turns_of_the_file_and_fits_the_window():
    found = calls("chatbot:v3_split")
    for turns, share in ((1, 0.236), (2, 0.145), (3, 0.151), (4, 0.148), (5, 0.114)):
        assert abs(found.count(turns) / N - share) < 4 * (share / N) ** 0.5
    assert abs(sum(n >= 9 for n in found) / N - 0.055) < 0.02
    assert max(dag.longest for dag in dags("chatbot:v3_split")) <= 2048 + 19


def test_raw90k_reproduces_calls_and_contexts_where_nothing_ends_a_conversation():
    """Two parameters of the calls meet the mean and three quantiles.

    Lengths do not depend on the number of calls, so calls ``j`` of 3000 conversations of 60 calls (100
    of 1000) stand for all calls ``j``, with the chance that a conversation gets there: no luck of the tail.
    """
    values = load("chatbot:raw90k", n=1).parameters["calls"]
    calls = NormalDist(values["mu"], values["sigma"])
    reached = [1.0, *(1.0 - calls.cdf(math.log(j + 0.5)) for j in range(1, values["max"]))]
    assert sum(reached) == pytest.approx(8.09, rel=0.02)
    endless, short = (
        CHATBOT.recipe("raw90k", {"max_context": 1 << 40, "calls": most}).start.args[0] for most in (1000, 60)
    )
    weighted = []
    for i in range(3000):
        context, shape = 0, endless if i < 100 else short
        for j, (new, output) in enumerate(shape.turns(key_of("golden", i)).lengths):
            weighted.append((context + new, reached[j] / (3000 if j < 60 else 100)))
            context += new + output
    weighted.sort()
    below = list(accumulate(chance for _, chance in weighted))
    for level, expected in ((0.5, 5357), (0.8, 21851), (0.99, 199424)):
        found = weighted[bisect_left(below, level * below[-1])][0]
        assert found == pytest.approx(expected, rel=0.04)


def test_raw90k_ends_conversations_at_the_context():
    result = load("chatbot:raw90k", n=N, seed=1)
    assert 0 < sum(result.repaired.values()) < 0.01 * N
    assert max(dag.longest for dag in dags("chatbot:raw90k")) <= 131_072


def test_bfcl_system_prompts_are_20_tool_sets_of_mean_5182():
    sizes = [dag.calls[0].prompt[0][1] for dag in dags("react:bfcl")]
    assert len({dag.calls[0].prompt[0] for dag in dags("react:bfcl")}) == len(set(sizes)) == 20
    assert fmean(sizes) == pytest.approx(5182, rel=0.02)
    assert 3200 <= min(sizes) <= 3300
    assert 6900 <= max(sizes) <= 7078


def test_bfcl_users_and_tools():
    users, results = [], []
    for dag in dags("react:bfcl"):
        by_user = [not call.tools for call in dag.calls]
        assert by_user[0]
        users += [dag.calls[0].prompt[-1][1]] + [
            new for new, user in zip(grown(dag), by_user[1:], strict=True) if user
        ]
        results += [new for new, user in zip(grown(dag), by_user[1:], strict=True) if not user]
    assert len(users) / N == pytest.approx(3.67, rel=0.03)
    assert fmean(users) == pytest.approx(39, rel=0.03)
    assert median(users) == pytest.approx(34, rel=0.06)
    assert fmean(results) == pytest.approx(60, rel=0.03)
    seconds = [s for dag in dags("react:bfcl") for call in dag.calls for _, s in call.tools]
    assert fmean(seconds) == pytest.approx(0.002, rel=0.05)


def test_bfcl_wide_reaches_the_papers_70_calls_and_bfcl_does_not():
    assert calls("react:bfcl-wide")[-1] > 55 > calls("react:bfcl")[-1]


def test_hotpot_stops_by_its_hazard_and_searches():
    found = calls("react:hotpot")
    alive = N
    for step, hazard in ((2, 0.068), (3, 0.616), (4, 0.393), (5, 0.351), (6, 1.0)):
        ended = found.count(step)
        assert abs(ended - hazard * alive) <= 4 * (hazard * (1 - hazard) * alive) ** 0.5
        alive -= ended
    assert alive == 0
    assert {dag.calls[0].prompt_tokens for dag in dags("react:hotpot")} == {1640}
    tools = [tool for dag in dags("react:hotpot") for call in dag.calls[1:] for tool in call.tools]
    assert {name for name, _ in tools} == {"search"}
    assert fmean(s for _, s in tools) == pytest.approx(0.89, rel=0.03)


def test_tau_tool_results():
    results = [
        new
        for dag in dags("react:tau")
        for new, call in zip(grown(dag), dag.calls[1:], strict=True)
        if call.tools
    ]
    assert results.count(0) / len(results) == pytest.approx(0.079, rel=0.15)
    assert median(results) == pytest.approx(246, rel=0.05)
    assert quantile(results, 0.95) == pytest.approx(429, rel=0.05)


def test_tot_call_counts():
    found = sorted(len(dag.calls) for dag in dags("mcts:tot", 500))
    assert fmean(found) == pytest.approx(104.6, rel=0.05)
    assert median(found) == pytest.approx(97, rel=0.08)
    assert quantile(found, 0.95) == pytest.approx(182, rel=0.1)
    assert found[0] >= 31
    assert found[-1] <= 277
    assert {(n - 16) % 3 for n in found} == {0}, "16 propose calls, 3 values per candidate"
    per_call = [c for dag in dags("mcts:tot", 500) for c in dag.calls]
    assert {c.prompt_tokens for c in per_call} == {297}
    assert fmean(c.output_tokens for c in per_call) == pytest.approx(52, rel=0.03)


def test_mapreduce_lengths():
    found = dags("mapreduce:summarise")
    prompts = [c.prompt_tokens for dag in found for c in dag.calls[:-1]]
    assert {len(dag.calls) - 1 for dag in found} == set(range(2, 13))
    assert fmean(prompts) == pytest.approx(2588, rel=0.02)
    assert median(prompts) == pytest.approx(2730, rel=0.03)
    assert quantile(prompts, 0.95) == pytest.approx(3813, rel=0.02)
    assert median(c.output_tokens for dag in found for c in dag.calls) == pytest.approx(179, rel=0.05)


def test_mixed_is_in_equal_thirds():
    kinds = [spec.kind for spec in load("mixed", n=3000, seed=1).programs]
    for kind in ("chatbot", "react", "mcts"):
        assert abs(kinds.count(kind) - 1000) <= 4 * (3000 * 2 / 9) ** 0.5


@pytest.mark.parametrize(("preset", "falls"), [("chatbot:v3_split", True), ("chatbot:raw90k", False)])
def test_mean_residual_life_of_a_programs_output(preset, falls):
    """Cut into windows, who got far is nearly done; whole conversations are the other way round."""
    totals = [dag.total_output for dag in dags(preset)]
    half = median(totals)
    left = fmean(total - half for total in totals if total > half)
    assert (left < 0.6 * fmean(totals)) == falls
    assert (left > 1.2 * fmean(totals)) == (not falls)

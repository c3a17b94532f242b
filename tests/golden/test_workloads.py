"""Numbers that must not drift: published calibrations, and the content of the default programs."""

from statistics import fmean, pstdev

import pytest

from workloads.dag import program_hash
from workloads.dryrun import dry_run, dry_runs
from workloads.load import load
from workloads.mcts import WORKLOAD as MCTS


@pytest.mark.parametrize(("p", "mean"), [(0.015, 200), (0.03, 134)])
def test_lats_call_count_follows_the_success_rate(p, mean):
    """workloads.md section 4: p = .015 gives 200 calls, .03 gives 134."""
    calls = [len(dry_run(spec).calls) for spec in MCTS.build(400, 11, None, {"p_success": p}).programs]
    assert abs(fmean(calls) - mean) <= 3 * pstdev(calls) / len(calls) ** 0.5


@pytest.mark.parametrize(
    ("name", "n", "digest"),
    [
        ("chatbot:paper", 50, "532d18d4b2edaba1"),
        ("mcts:lats", 5, "b9367e2b9bb1b96b"),
        ("chatbot:v3_split", 50, "056fd7a178a2b432"),
        ("chatbot:raw90k", 50, "06ab178230a51017"),
        ("react:bfcl", 50, "1982a0fdd62c4ff9"),
        ("react:hotpot", 50, "e48124d464f75663"),
        ("react:tau", 50, "cc95429aad6e30bc"),
        ("mcts:tot", 5, "e418dc41eea6ef0e"),
        ("fitted:sharegpt500", 50, "f941ea716b3470d4"),
        ("mapreduce:summarise", 50, "db913f85f6d938a3"),
        ("mixed:paper", 20, "6eb0caf0e1ca3848"),
    ],
)
def test_default_programs_stay_what_they_are(name, n, digest):
    """A change here makes every stored result incomparable: change it knowingly."""
    assert program_hash(dry_runs(load(name, n=n, seed=0).programs))[:16] == digest

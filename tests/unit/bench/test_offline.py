import pytest

from bench.offline import Ledger, offline
from workloads.load import load


@pytest.mark.parametrize("workload", ["chatbot:paper", "react:bfcl", "mcts:lats", "mixed"])
def test_a_ledger_knows_every_shorter_set(workload):
    specs = load(workload, n=12, seed=3).programs
    ledger = Ledger(specs)
    for n in (1, 5, 12):
        assert ledger.upto(n) == offline(load(workload, n=n, seed=3).programs)
    assert ledger.upto(0).calls == 0


def test_the_longest_call_is_that_of_the_first_program_that_has_it():
    specs = load("mapreduce", n=30, seed=1).programs
    facts = offline(specs)
    assert facts.longest == max(Ledger([s]).upto(1).longest for s in specs)
    assert Ledger([specs[facts.longest_program]]).upto(1).longest == facts.longest

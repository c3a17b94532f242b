"""Radix hits on a roomy engine against the offline optimum: shared tool sets (BFCL) and siblings (LATS)."""

import pytest

from bench.config import RunConfig
from bench.eventlog import from_memory
from bench.metrics import kv_hits
from bench.plan import plan
from bench.records import MemorySink
from bench.run import drive_plan


@pytest.mark.parametrize(
    ("workload", "least"),
    [("react:bfcl", 0.95), ("react:bfcl-own", 0.88), ("mcts:lats", 0.97), ("mcts:tot", 0.9)],
)
@pytest.mark.parametrize("system", ["vllm-opt", "autellix"])
def test_nothing_is_lost_where_there_is_room(system, workload, least):
    made, sink = plan(RunConfig(system, workload, 0.2, n=40)), MemorySink()
    drive_plan(made, sink)
    hits = kv_hits(from_memory(sink).calls)["hit_rate"]
    assert hits >= 0.995 * made.offline.optimum
    assert hits <= made.offline.optimum
    assert hits > least


def test_without_a_cache_nothing_is_found():
    made, sink = plan(RunConfig("vllm-base", "react:bfcl", 0.2, n=10)), MemorySink()
    drive_plan(made, sink)
    assert kv_hits(from_memory(sink).calls)["hit_rate"] == 0.0

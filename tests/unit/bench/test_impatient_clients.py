"""Clients that give calls up, in an engine and at a gate's door: every sum of the log holds."""

import pytest

from bench.config import RunConfig
from bench.eventlog import read_tables
from bench.run import run


@pytest.mark.parametrize(("gate", "retries"), [("open", 0), ("program-cap", 0), ("program-cap", 2)])
def test_calls_that_are_given_up_are_counted_where_they_were(gate, retries, tmp_path):
    knobs = {"gate": gate} | ({"gate.programs": "2"} if gate == "program-cap" else {})
    parameters = {"patience_s": "3", "retries": str(retries), "calls": "4", "scale.output": "1.5"}
    config = RunConfig(system="vllm-opt", workload="swe:mini", concurrency=8, n=12, out=tmp_path,
                       knobs=knobs, parameters=parameters)  # fmt: skip
    log = read_tables(run(config).folder)
    given_up = log.calls[log.calls.aborted]
    left = log.programs[log.programs.outcome == "abandoned"]
    assert len(given_up) >= (retries + 1) * len(left)
    assert ((given_up.t_end - given_up.t_arrive) >= 3.0).all()
    outside = given_up[given_up.engine < 0]
    assert (len(outside) > 0) == (gate == "program-cap")
    assert (outside.hold_s == outside.wait_s).all()
    assert len(left) > 0
    assert len(left) < 12 or gate == "program-cap"

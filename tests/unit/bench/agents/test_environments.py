"""Costs of sandboxes from the host's events."""

import pytest

from bench.agents.environments import environments, metrics_of
from tests.unit.bench.agents.runs import sandbox

EVENTS = [
    sandbox(0, 0.0, "init", 0.2),
    sandbox(0, 1.0, "exec", 0.01, disk=4000),
    sandbox(0, 2.0, "exec", 0.03, ok=False, disk=6000),
    sandbox(0, 2.0, "kill", 0.0),
    sandbox(0, 3.0, "retry", 0.1),
    sandbox(0, 3.1, "teardown", 0.3, disk=5000),
    sandbox(1, 0.0, "init", 0.4),
    sandbox(1, 9.0, "teardown", 0.1, disk=1000),
]


def test_by_hand():
    found = environments(EVENTS, ["a process 12 of s-0"])
    assert found["sandboxes"] == 2
    assert found["init"] == {"n": 2, "failed": 0, "mean": pytest.approx(0.3), "p50": None, "p95": None}
    assert found["exec"]["failed"] == 1
    assert found["disk"] == {"n": 2, "mean": 3500.0, "most": 6000}
    assert found["trouble"] == {"retry": 1, "leak": 0, "kill": 1}
    assert found["leaks"] == ["a process 12 of s-0"]


def test_what_checks_do_is_no_cost_and_failures_are_no_times():
    checks = [
        sandbox(0, 2.5, "exec", 5.0, phase="check"),
        sandbox(1, 8.0, "exec", 120.0, ok=False, phase="check"),
        sandbox(1, 8.5, "kill", 0.0, phase="check"),
    ]
    late = [sandbox(2, 0.0, "init", 30.0, ok=False, phase="setup")]
    found = environments([*EVENTS, *checks, *late], [])
    assert (found["exec"]["n"], found["exec"]["failed"], found["exec"]["mean"]) == (2, 1, 0.01)
    assert (found["init"]["n"], found["init"]["failed"]) == (3, 1)
    assert found["init"]["mean"] == pytest.approx(0.3)
    assert found["checks"] == {"n": 2, "failed": 1}
    assert found["trouble"]["kill"] == 1
    metrics = metrics_of([*EVENTS, *checks, *late])
    assert metrics["sandbox.exec_s"].value == 0.01
    assert metrics["sandbox.init_s"].value == pytest.approx(0.3)


def test_percentiles_need_enough_of_them():
    many = [sandbox(0, i, "exec", i / 1000) for i in range(130)]
    found = environments(many, [])["exec"]
    assert found["p50"] == pytest.approx(0.0645)
    assert found["p95"] == pytest.approx(0.1225, abs=0.001)
    assert environments(many[:40], [])["exec"]["p95"] is None


def test_of_no_sandbox_there_are_no_numbers():
    assert environments([], [])["init"] == {"n": 0, "failed": 0, "mean": None, "p50": None, "p95": None}
    assert metrics_of([]) == {}
    assert metrics_of(EVENTS)["sandbox.init_s"].value == pytest.approx(0.3)

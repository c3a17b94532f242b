"""When sandboxes are prepared and torn down, and what they may cost."""

import pytest

from systems.catalog import CatalogError, load_system
from systems.environments.gc_on_release import GcOnRelease
from systems.environments.none import Nothing
from systems.environments.on_demand import OnDemand
from systems.environments.prepare_ahead import PrepareAhead
from systems.protocols import Environment
from systems.slots import found
from vocabulary import INF


def decided(policy):
    return (policy.arrive(1, 0.0), policy.held(1, 4, 0.0), policy.held(1, 5, 0.0), policy.resume(1, 0.0))


@pytest.mark.parametrize(
    ("policy", "prepares", "until"),
    [
        (Nothing(), (False, False, False, False), INF),
        (OnDemand(), (False, False, False, False), INF),
        (GcOnRelease(), (False, False, False, False), 7.0),
        (GcOnRelease(keep_s=60.0), (False, False, False, False), 67.0),
        (PrepareAhead(), (False, True, False, True), INF),
        (PrepareAhead(ahead=5, keep_s=0.0), (False, True, True, True), 7.0),
    ],
)
def test_who_prepares_when(policy: Environment, prepares, until):
    assert decided(policy) == prepares
    assert policy.keep(1, 7.0) == until


def test_they_are_found_and_their_costs_are_knobs():
    assert set(found("environment")) >= {"none", "on-demand", "prepare-ahead", "gc-on-release"}
    spec = load_system("vllm-opt", environment="gc-on-release", knobs={"environment.cores": "8"})
    assert dict(spec.environment_knobs) == {
        "init_s": 30.0, "cores": 8.0, "disk_gb": 7.0, "shared_gb": 100.0, "ports": 1, "most_ports": 10_000,
        "teardown_s": 1.0, "keep_s": 0.0,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("knob", "value", "said"),
    [
        ("init_s", "-1", "init_s must be a number from 0"),
        ("cores", "0", "cores must be above 0"),
        ("disk_gb", "much", "disk_gb must be a number from 0"),
        ("ports", "1.5", "ports must be a whole number of at least 0"),
        ("most_ports", "0", "most_ports must be a whole number of at least 1"),
        ("ports", "20000", "a sandbox of 20000 ports never fits most_ports 10000"),
        ("keep_s", "nan", "keep_s must be a number from 0"),
        ("keep_s", "1e9", "keep_s must be a number from 0 to 1e\\+06"),
        ("ahead", "-1", "ahead must be a whole number, not negative"),
        ("disc_gb", "1", "Did you mean disk_gb?"),
    ],
)
def test_costs_that_make_no_sense_are_refused(knob, value, said):
    with pytest.raises(CatalogError, match=said.replace("?", r"\?")):
        load_system("vllm-opt", environment="prepare-ahead", knobs={f"environment.{knob}": value})

"""Every scheduler on one scenario of every family, and vLLM's own policies: the suite's part a, in small."""

from functools import partial

import pytest

from bench.fidelity.apart import Case, compare
from bench.fidelity.hosts import Hosts, vllm_version
from bench.fidelity.matrix import Cell, noticed, ours, stock
from bench.fidelity.scenarios import FAMILIES, scenario
from bench.fidelity.schedules_page import acts
from systems.catalog import scheduler_names
from systems.schedulers.fcfs import Fcfs
from vocabulary import INF

pytestmark = pytest.mark.live

CASES = [scenario(family, 50 + i, large=family.name == "reuse") for i, family in enumerate(FAMILIES)]
STARVED = [case for case in CASES if case.family == "starved"]
EVERYWHERE = {case.family: ({}, "") for case in CASES}
ORDERS = ("fcfs", "priority")
ORDERS_ALONE = [f"vLLM's {order}" for order in ORDERS]


@pytest.fixture(scope="module")
def hosts():
    with Hosts(2) as hosts:
        hosts.start(CASES[0].config, Fcfs(), CASES[0].latency)
        yield hosts


@pytest.fixture(scope="module")
def results(hosts):
    """By scheduler, then by vLLM's own policies; two processes share the work."""
    jobs = [partial(ours, name, CASES, print) for name in scheduler_names()]
    jobs += [partial(stock, order, CASES, print) for order in ORDERS]
    return dict(zip((*scheduler_names(), *ORDERS_ALONE), hosts.share(jobs), strict=True))


@pytest.mark.parametrize("name", [*scheduler_names(), *ORDERS_ALONE])
def test_the_same_steps_in_vllm(results, name):
    assert {r.family: (r.differs, r.lacks) for r in results[name]} == EVERYWHERE


@pytest.mark.parametrize("name", scheduler_names())
def test_the_policy_acted(results, name):
    assert acts(Cell.of(results[name], name)) in ("", "promoted")  # nobody need starve on so few


def test_a_wrong_rule_shows_against_vllm_alone(hosts):
    found = noticed(STARVED, hosts.maker())
    assert found["last come, first served"]["starved"] == [1, 1]
    assert found["no prefix cache"]["starved"] == [1, 1]


def test_two_engines_part_only_where_that_is_explained(hosts):
    same, other = (compare(case, [1, 2], hosts.maker()) for case in (Case("plas", INF), Case("job-fcfs")))
    assert (same.differ, same.mean.value, same.ks) == (0, 0.0, 0.0)
    assert other.differ == 2


def test_jobs_are_shared_between_processes_and_errors_come_through(hosts):
    assert hosts.share([lambda make, n=n: n for n in range(5)]) == list(range(5))
    with pytest.raises(ZeroDivisionError):
        hosts.share([lambda make: 1 // 0, lambda make: 1])


def test_the_version_is_known():
    assert vllm_version().startswith("vllm")

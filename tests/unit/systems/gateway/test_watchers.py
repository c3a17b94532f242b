"""A gateway gets its metrics, and its event log where one was asked for."""

import asyncio

import pytest

from systems.gateway.events import EventLog
from systems.gateway.events_reader import read_events
from systems.gateway.gateway import Gateway
from systems.gateway.metrics import Metrics
from systems.gateway.options import GatewayOptions, Target
from systems.gateway.watchers import attach

TARGETS = (Target("http://127.0.0.1:9"),)


def test_the_log_says_which_system_decides_and_is_closed_with_the_gateway(tmp_path):
    gateway = Gateway(GatewayOptions(TARGETS, system="plas", log=str(tmp_path / "e")))
    attach(gateway)
    assert [type(one) for one in gateway.observers] == [EventLog, Metrics]
    gateway.programs.start("p", 0.0)
    asyncio.run(gateway.stop())
    (run,) = read_events(tmp_path / "e")
    assert (run.system, run.unit) == ("plas", gateway.system.unit)
    assert run.wall == gateway.origin_wall
    assert run.programs[0].name == "p"
    assert run.programs[0].why == "ended"


def test_without_a_log_there_are_metrics_only():
    gateway = Gateway(GatewayOptions(TARGETS))
    attach(gateway)
    assert [type(one) for one in gateway.observers] == [Metrics]


def test_a_log_that_cannot_be_opened_is_an_error(tmp_path):
    gateway = Gateway(GatewayOptions(TARGETS, log=str(tmp_path / "none" / "e")))
    with pytest.raises(FileNotFoundError):
        attach(gateway)

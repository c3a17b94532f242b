"""Agents behind our real gateway: retention hears of scripted tools, and books of two engines agree."""

from dataclasses import replace

import pandas as pd
import pytest

from bench.agents import entries
from bench.agents import plan as plans
from bench.agents.plan import agent_plan
from bench.live.cells import cell
from bench.live.deployment import make_front
from bench.live.goodbyes import Goodbyes
from tests.unit.bench.live.conftest import SERVED


@pytest.fixture
def behind(agents, monkeypatch):
    """Plans that are served by our gateway."""
    monkeypatch.setattr(plans, "served", lambda config, options: replace(SERVED, front="gateway"))
    return agents


def ran(agents, asked):
    with agents.pool(front=make_front) as pool:
        return cell(agent_plan(asked), pool)


def test_retention_hears_of_each_tool_with_the_reply_that_asks_for_it(behind, config):
    behind.options["controlled"] = True
    knobs = {"retention": "continuum-fixed"}
    asked = config(
        system="session-pinned", n=2, knobs=knobs, parameters={"tasks": "repair", "sandbox": "process"}
    )
    result = ran(behind, asked)
    calls = pd.read_parquet(result.folder / "calls.parquet")
    away = len(calls) - calls.program.nunique()  # every call but the last asks for a tool
    counts = result.summary["keep_events"]
    assert 0.7 * away <= counts["keep"] <= away  # a tool can be over before the gateway hears of it
    assert counts["back"] == counts["keep"]
    assert result.summary["agents"]["tokens"]["difference"] == 0
    assert result.summary["agents"]["environment"]["teardown"]["n"] == 2
    assert result.summary["agents"]["environment"]["leaks"] == []  # the gateway was asked, too
    (engine,) = behind.engines
    assert [message["op"] for message in engine.told].count("end") == 2


def test_two_engines_books_are_those_of_their_logs(behind, config):
    asked = config(workload="agents:mapreduce", system="autellix", n=2, replicas=2, knobs={}, parameters={})
    result = ran(behind, asked)
    books = result.summary["books"]
    assert books["programs"] == books["equal"] == 2
    assert result.summary["agents"]["cost"]["held_s"] > result.summary["agents"]["cost"]["busy_s"] > 0


def test_programs_that_nobody_said_goodbye_for_are_told_as_left(behind, config, monkeypatch):
    monkeypatch.setattr(Goodbyes, "say", lambda self, program: None)
    monkeypatch.setattr(entries, "PATIENCE_S", 0.2)
    result = ran(behind, config(n=1, knobs={}))
    (leak,) = result.summary["agents"]["environment"]["leaks"]
    assert leak.startswith("program entry ")
    assert any("1 things were left after the run" in warning for warning in result.summary["warnings"])

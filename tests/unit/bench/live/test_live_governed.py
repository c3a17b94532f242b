"""Live cells of systems with a gate or retention, on engines that are none, behind our real gateway."""

from dataclasses import replace

import pandas as pd
import pytest

from bench.errors import MissingError, UsageError
from bench.live import plan as plans
from bench.live.books import books
from bench.live.cells import cell
from bench.live.deployment import make_front
from bench.live.kept import COUNTERS
from bench.live.plan import live_plan
from tests.unit.bench.live.conftest import SERVED
from vocabulary import INF

SHORT = {"token_scale": "1/64", "tool_mean_s": "0.05", "scale.calls": "0.1"}
"""Five calls or so, and tools that last longer than a message to the gateway takes."""


@pytest.fixture
def behind(monkeypatch):
    """Plans that are served by our gateway."""
    monkeypatch.setattr(plans, "served", lambda config, options: replace(SERVED, front="gateway"))


def frame(result, name):
    return pd.read_parquet(result.folder / f"{name}.parquet")


def ran(stage, asked):
    """Without a pilot: nothing is predicted here."""
    with stage.pool(front=make_front) as pool:
        return cell(live_plan(asked), pool)


def test_what_a_cap_holds_is_part_of_the_calls_wait(stage, config, behind):
    knobs = {"live.client": "stream", "gate.programs": "1"}
    result = ran(stage, config(system="program-cap", workload="react", rate=200.0, n=4, knobs=knobs))
    calls, programs = frame(result, "calls"), frame(result, "programs")
    assert (calls.hold_s > 0).sum() == 3  # the first calls of all but the first program
    assert (calls.wait_s >= calls.hold_s).all()
    assert sorted(programs.hold_s)[1:] == sorted(calls.hold_s[calls.hold_s > 0])
    # one after the other
    done = programs.sort_values("t_end")
    first = calls.sort_values("t_first_sched").groupby("program").t_first_sched.first()
    assert (first[done.program[1:]].to_numpy() >= done.t_end[:-1].to_numpy() - 0.05).all()


def test_what_a_gate_did_is_a_decision_and_counted(stage, config, behind):
    knobs = {"live.client": "stream", "gate.dt": "0.05", "gate.buffer": "0", "engine.kv_blocks": "16"}
    asked = config(system="thunderagent", workload="react", rate=200.0, n=4, knobs=knobs)
    result = ran(stage, replace(asked, on_overflow="truncate"))
    decisions, calls = frame(result, "decisions"), frame(result, "calls")
    gate = decisions[decisions.rule.str.startswith("gate:")]
    assert gate.rule.str.startswith("gate:admit:").sum() >= 1
    assert set(gate.call) <= set(frame(result, "programs").program)
    assert gate.time.is_monotonic_increasing
    assert gate.time.between(0.0, calls.t_end.max() + 1.0).all()
    counts = result.summary["gate_events"]
    assert sum(counts.values()) == len(gate)


def test_tools_are_told_to_the_policy_and_engines_keep_by_its_word(stage, config, behind):
    stage.options["controlled"] = True
    knobs = {"live.client": "stream", "retention": "continuum-fixed"}
    asked = config(system="session-pinned", workload="swe:mini", n=3, knobs=knobs, parameters=SHORT)
    result = ran(stage, asked)
    (engine,) = stage.engines
    operations = [message["op"] for message in engine.told]
    assert operations.count("end") == 3
    calls = frame(result, "calls")
    away = len(calls) - calls.program.nunique()  # a tool runs between two calls
    counts = result.summary["keep_events"]
    assert 0.8 * away < counts["keep"] <= away  # a tool can be over before the gateway hears of it
    assert counts["back"] == counts["keep"]
    assert operations.count("retain") >= counts["keep"] - 2  # one that comes late is not said
    assert all(0.0 < m["for_s"] <= 2.0 for m in engine.told if m["op"] == "retain")
    assert result.summary["kept"] == {**dict.fromkeys(COUNTERS, 0), "pinned": 5}  # by its own counters
    rules = frame(result, "decisions").rule
    assert "keep:keep:" not in set(rules)  # every tool has its name
    assert rules.str.startswith("keep:keep:").sum() == counts["keep"]


def test_holds_events_and_ends_of_a_run_are_its_own():
    def line(event, name="r.3", **fields):
        return {"event": event, "name": name, "t": 2.0, **fields}

    gate = {"program": 17, "engine": 1, "what": "pause", "reason": "full", "tokens": 40}
    kept = {"program": 17, "thread": "", "what": "keep", "tool": "t", "tokens": 40, "until": None,
            "keep_price": 1.0, "evict_price": 2.0, "regret": None}  # fmt: skip
    found = books([line("gate", **gate), line("kept", **kept), line("started")], origin=100.0)
    rows = found.decisions(begin=101.0)
    assert [(row.time, row.engine, row.call, row.rule, row.value) for row in rows] == [
        (1.0, 1, 3, "gate:pause:full", 40.0), (1.0, -1, 3, "keep:keep:t", INF),
        (1.0, -1, 3, "keep:price:keep", 1.0), (1.0, -1, 3, "keep:price:evict", 2.0),
    ]  # fmt: skip
    assert found.said() == {"gate_events": {"pause: full": 1}, "keep_events": {"keep": 1}}
    assert books([]).said() == {}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"system": "program-cap"}, "gate program-cap acts in our gateway"),
        ({"system": "survival"}, "retention survival acts in our gateway"),
        ({"system": "continuum-fixed", "knobs": {"live.attach": "http://127.0.0.1:1"}, "scheduler": "fcfs"},
         "keep nothing for retention continuum-fixed"),
        ({"system": "survival", "knobs": {"live.driver": "locust"}}, "does not say when tools begin"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_before_anything_starts(stage, config, change, message):
    with pytest.raises(UsageError, match=message):
        live_plan(config(**change))


def test_retention_behind_somebody_elses_front_is_a_missing_capability(stage, config):
    with pytest.raises(MissingError, match="retention pin: is decided in our gateway"):
        live_plan(config(system="smg-sticky", knobs={"retention": "pin"}))

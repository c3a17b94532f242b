"""Live cells from a command to the event log, on engines that are none."""

import json
import signal
from dataclasses import replace

import pandas as pd
import pytest

from bench.drivers.audit import Audit
from bench.drivers.calls import CallFailed
from bench.errors import BenchError, Exit, InvalidRun
from bench.live import plan as plans
from bench.live.books import books
from bench.live.cells import cell, run_live, sweep_live
from bench.live.deployment import make_engines, make_front
from bench.live.logs import EngineLog
from bench.live.pilot import SEED
from bench.live.pool import Pool
from bench.run import Interrupted
from tests.unit.bench.live.conftest import SERVED
from tests.unit.bench.live.engines import FakeEngine


def frame(result, name):
    return pd.read_parquet(result.folder / f"{name}.parquet")


def test_a_run_is_measured_logged_and_not_made_again(stage, config):
    swept = run_live([config()], stage.said.append, pool=stage.pool)
    (first,) = swept.outcomes
    assert first.summary["badge"].startswith(
        "MEASURED (vLLM 0.0 on CPU A CPU, 2 cores), 1 x tiny-llama, 256 KV"
    )
    assert first.summary["outcomes"] == {"finished": 6}
    assert first.summary["card"]["engine"]["kind"].startswith("measured")
    assert first.summary["client"]["verdict"] in ("ok", "suspect")
    metrics = first.summary["metrics"]
    assert metrics["wait.exec_s"]["value"] > 0
    assert metrics["client.ttft.mean"]["value"] > 0
    made = json.loads((first.folder / "manifest.json").read_text())
    assert made["serving"]["engines"][0]["command"] == ["fake", "engine-0"]
    assert made["identity"]["live"]["version"] == "0.0"
    (engine,) = stage.engines
    assert engine.flushed == 2  # before the pilot, and before the cell
    assert engine.begun == 1

    again = run_live([config()], stage.said.append, pool=stage.pool).outcomes[0]
    assert again.cached
    assert again.summary["result_hash"] == first.summary["result_hash"]
    assert len(stage.engines) == 1


def test_every_second_of_a_program_is_accounted_for(stage, config):
    (result,) = run_live([config(workload="react", n=4)], stage.said.append, pool=stage.pool).outcomes
    programs, calls = frame(result, "programs"), frame(result, "calls")
    parts = [c for c in programs if c.startswith("cp_")]
    assert (programs[parts].sum(axis=1) == programs.t_end - programs.t_arrive).all()
    assert (programs.cp_overhead_s > 0).all()
    assert (programs.cp_wait_s + programs.cp_prefill_s + programs.cp_decode_s > 0).all()
    assert programs.tool_s.sum() > 0
    assert (programs.cp_tool_s == programs.tool_s).all()  # one thread: all of it is on the path
    assert calls.t_arrive.min() > 0
    assert (calls.t_end <= programs.t_end.max()).all()
    assert calls.seq.is_unique
    assert list(frame(result, "engine").waiting)[-1] == 0


def test_a_sweep_takes_systems_in_turn_and_predicts_each_cell_from_others(stage, config):
    configs = [config(system=system, seed=seed, n=24) for seed in (1, 2) for system in ("vllm-opt", "mlfq")]
    swept = sweep_live(configs, stage.said.append, pool=stage.pool)
    assert [o.summary["system"] for o in swept.outcomes] == ["vllm-opt", "mlfq"] * 2
    assert [engine.begun for engine in stage.engines] == [1, 1]
    assert any("2 vLLM engines start" in line for line in stage.said)  # together
    rows, notes = swept.beside(stage.said.append)
    assert notes == []
    assert [(row["system"], row["seeds"]) for row in rows] == [("vllm-opt", [1, 2]), ("mlfq", [1, 2])]
    assert rows[0]["ratio"] is None
    assert rows[1]["ratio"]["value"] > 0
    for row in rows:
        assert row["predicted"]["response_mean"]["value"] > 0
        assert row["measured"]["hit_rate"]["value"] == pytest.approx(
            row["predicted"]["hit_rate"]["value"], abs=0.3
        )
    names = {o.folder.name: o for o in swept.outcomes}
    for outcome in swept.outcomes:
        predicted = json.loads((outcome.folder / "predicted.json").read_text())
        for source in predicted["fitted_on"]:
            assert names[source].summary["seed"] != outcome.summary["seed"]
            assert names[source].summary["system"] == "vllm-opt"
    before = (swept.outcomes[0].folder / "predicted.json").stat().st_mtime_ns
    swept.beside(stage.said.append)
    assert (swept.outcomes[0].folder / "predicted.json").stat().st_mtime_ns == before


def test_one_run_is_predicted_from_the_pilot(stage, config):
    swept = run_live([config(n=24)], stage.said.append, pool=stage.pool)
    (row,), notes = swept.beside(stage.said.append)
    assert notes == []
    predicted = json.loads((swept.outcomes[0].folder / "predicted.json").read_text())
    assert predicted["fitted_on"] == [f"pilot {swept.pilots[0].name}"]
    assert row["predicted"]["response_mean"]["value"] > 0


def test_without_a_rate_the_pilot_tells_it_and_is_kept(stage, config, tmp_path):
    asked = config(rate=None, knobs={"live.front": "none", "live.load": "0.5"})
    first = run_live([asked], stage.said.append, pool=stage.pool)
    (kept,) = (tmp_path / "out" / "pilots").glob("*.json")
    capacity = json.loads(kept.read_text())["capacity"]
    assert first.plans[0].rate == float(f"{0.5 * capacity:.3g}")
    again = run_live([asked], stage.said.append, pool=stage.pool)
    assert again.outcomes[0].cached
    assert len(stage.engines) == 1
    seeds = json.loads((first.outcomes[0].folder / "manifest.json").read_text())["seeds"]
    assert SEED not in seeds


def test_an_engine_that_dies_ends_its_cell_and_the_others_go_on(stage, config):
    stage.options["answers"] = 40  # warm-up and a part of a cell
    configs = [config(seed=seed, n=12) for seed in (1, 2)]
    swept = sweep_live(configs, stage.said.append, pool=stage.pool)
    dead = [o for o in swept.outcomes if not hasattr(o, "summary")]
    assert dead
    assert all(o.exit_code == Exit.MISSING for o in dead)
    assert "its last words: Killed" in dead[0].message
    assert len(stage.engines) >= 2  # a new one for the cell that follows
    del stage.options["answers"]
    again = sweep_live(configs, stage.said.append, pool=stage.pool)
    assert again.done == 2


def test_an_engine_that_fails_a_call_is_started_anew(stage, config):
    """It may hang; a client that was late says nothing about engines."""
    swept = run_live([config()], stage.said.append, pool=stage.pool)
    for error, anew in ((CallFailed("call 0: no answer within 600 s"), 1), (None, 0)):
        before = len(stage.engines)
        with stage.pool() as pool:
            pool.get(swept.plans[0])

            def fails(*_, error=error):
                raise InvalidRun("it failed") from error

            pool.get = lambda plan, pool=pool, fails=fails: Failing(Pool.get(pool, plan), fails)
            with pytest.raises(InvalidRun, match="it failed"):
                cell(swept.plans[0], pool, force=True)
            Pool.get(pool, swept.plans[0])
            assert len(stage.engines) == before + 1 + anew


class Failing:
    """A deployment that is told to flush, and fails."""

    def __init__(self, deployment, flush):
        self.facts, self.flush = deployment.facts, flush


def test_a_pilot_whose_call_fails_stops_its_engines(stage, config, monkeypatch):
    def fails(*_):
        raise InvalidRun("call 0: no answer within 600 s") from CallFailed("call 0")

    monkeypatch.setattr("bench.live.pilot.measure", fails)
    swept = sweep_live([config(seed=1), config(seed=2, n=7)], stage.said.append, pool=stage.pool)
    assert [outcome.exit_code for outcome in swept.outcomes] == [Exit.INVALID_RUN] * 2
    assert len(stage.engines) == 2  # each with an engine of its own


def test_sigterm_stops_everything_as_ctrl_c_does(stage, config):
    def terminate(done, total, sent=[]):
        if not sent:
            sent.append(signal.raise_signal(signal.SIGTERM))

    with pytest.raises(BenchError, match="interrupted") as told:
        run_live([config()], stage.said.append, progress=terminate, pool=stage.pool)
    assert told.value.exit_code == Exit.INTERRUPTED
    assert all(engine._loop is None for engine in stage.engines)
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_a_client_that_is_late_makes_no_result(stage, config, monkeypatch):
    monkeypatch.setattr(Audit, "verdict", property(lambda self: "invalid"))
    with pytest.raises(InvalidRun, match="could not keep up, 3 times"):
        run_live([config()], stage.said.append, pool=stage.pool)


def test_caches_that_cannot_be_flushed_are_said(stage, config):
    pool = stage.pool()
    make = stage.make

    def stubborn(*asked):
        made = make(*asked)
        for engine in made:
            engine.flushes = False
        return made

    pool._engines = stubborn
    (result,) = run_live([config()], stage.said.append, pool=lambda: pool).outcomes
    assert any(
        "could not be flushed (POST /reset_prefix_cache answers 404)" in w for w in result.summary["warnings"]
    )


def test_engines_without_logs_tell_no_waits(stage, config):
    stage.options["logs"] = False
    swept = run_live([config()], stage.said.append, pool=stage.pool)
    metrics = swept.outcomes[0].summary["metrics"]
    assert metrics["wait.wait_s"]["value"] is None
    assert "no scheduler of ours" in metrics["kv.hit_rate"]["note"]
    assert metrics["program.response.mean"]["value"] > 0
    assert swept.beside(stage.said.append) == ([], [])


def test_an_engine_that_runs_already_is_used_and_left_alone(stage, config, tmp_path):
    engine = FakeEngine(tmp_path / "theirs", **stage.options)
    engine.begin()
    try:
        asked = config(knobs={"live.front": "none", "live.attach": engine.url})
        pool = stage.pool(engines=make_engines)
        (result,) = run_live([asked], stage.said.append, pool=lambda: pool).outcomes
        assert engine._thread.is_alive()
        assert result.summary["outcomes"] == {"finished": 6}
        assert result.summary["metrics"]["wait.wait_s"]["value"] is None
        assert any("no scheduler of ours" in warning for warning in result.summary["warnings"])
    finally:
        engine.stop()


def test_behind_our_gateway_a_program_has_one_account_for_both_engines(stage, config, monkeypatch):
    monkeypatch.setattr(plans, "served", lambda config, options: replace(SERVED, front="gateway"))
    asked = config(replicas=2, n=8, knobs={"live.client": "stream"})
    (result,) = run_live([asked], stage.said.append, pool=lambda: stage.pool(front=make_front)).outcomes
    calls, totals = frame(result, "calls"), frame(result, "totals")
    assert set(calls.engine) == {0, 1}
    assert list(totals.calls_finished) == list(calls.groupby("engine").size())
    books = result.summary["books"]
    assert (books["programs"], books["equal"]) == (8, 8)
    assert books["over_several_engines"] > 0
    assert books["calls"] == books["charged_from_logs"] == len(calls)
    made = json.loads((result.folder / "manifest.json").read_text())
    assert made["serving"]["front"]["kind"] == "gateway"


def test_a_closed_loop_has_so_many_programs_at_all_times(stage, config):
    asked = config(rate=None, concurrency=2, n=24)
    swept = run_live([asked], stage.said.append, pool=stage.pool)
    programs = frame(swept.outcomes[0], "programs")
    assert (programs.outcome == "finished").sum() == 24
    ends = sorted(programs.t_end)
    starts = sorted(programs.t_arrive)
    assert starts[1] < 0.1  # two at once, then one whenever one is over
    for start, end in zip(starts[2:], ends, strict=False):
        assert 0.0 <= start - end < 0.1
    (row,), notes = swept.beside(stage.said.append)
    assert notes == []
    assert row["predicted"]["response_mean"]["value"] > 0
    assert swept.outcomes[0].summary["load"] == "24 programs, 2 at all times"


def test_what_a_gate_holds_is_wait():
    log = EngineLog(0, {"0..0": {"served": 3.0}, "0..1": {"served": 4.0}}, [], {})
    left = [
        {"event": "left", "name": "r.0", "thread": "", "index": i, "t_arrive": 1.0, "t_admit": until,
         "t_end": 9.0, "served": served, "source": "log", "seq": 7 + i}
        for i, (until, served) in enumerate([(1.5, 3.0), (1.001, 4.0)])
    ]  # fmt: skip
    found = books([{"event": "held", "seq": 7}, *left])
    assert found.held == {"0..0": 0.5}
    assert found.against([log])["equal"] == 1
    assert books([*left, left[0]]).against([log])["equal"] == 0


def test_locust_can_drive_a_cell(stage, config):
    asked = config(n=4, knobs={"live.front": "none", "live.driver": "locust"})
    (result,) = run_live([asked], stage.said.append, pool=stage.pool).outcomes
    made = [json.loads((result.folder / "manifest.json").read_text())]
    (same,) = run_live([config(n=4)], stage.said.append, force=True, pool=stage.pool).outcomes
    assert result.summary["outcomes"] == {"finished": 4}
    assert result.summary["calls"] == same.summary["calls"]
    made.append(json.loads((same.folder / "manifest.json").read_text()))
    assert made[0]["identity"]["programs"] == made[1]["identity"]["programs"]


def test_ctrl_c_keeps_what_is_finished_and_stops_everything(stage, config):
    configs = [config(seed=seed) for seed in (1, 2)]

    def interrupt(standing, sent=[]):
        if standing.done == 1 and not sent:
            sent.append(signal.raise_signal(signal.SIGINT))

    with pytest.raises(Interrupted, match="1 of 2 cells are finished and kept"):
        sweep_live(configs, stage.said.append, progress=interrupt, pool=stage.pool)
    assert all(engine._loop is None for engine in stage.engines)
    again = sweep_live(configs, stage.said.append, pool=stage.pool)
    assert [outcome.cached for outcome in again.outcomes] == [True, False]


def test_errors_are_told_before_anything_starts(stage, config):
    for change, message in [
        ({"concurrency": 2, "rate": None, "knobs": {"live.driver": "locust"}}, "as they arrive: give --rate"),
        ({"concurrency": 2, "rate": None, "workload": "rl"}, "waves"),
        ({"knobs": {"engine.kv_blocks": "15"}}, "multiple of 2"),
        ({"replicas": 2}, "live.front=none calls one engine"),
        ({"model": "llama-3.1-8b"}, "no GPU here to serve"),
        ({"knobs": {"latency.prefill": "1.1"}}, "a live engine takes its own"),
        ({"knobs": {"live.attach": "host:1"}}, "takes URLs"),
        ({"knobs": {"live.load": "0"}}, "between 0.05 and 10"),
        ({"knobs": {"live.attach": "http://a:1"}, "system": "mlfq"}, "keep their scheduler"),
        ({"system": "srpt"}, "cannot run on engine vllm"),
    ]:
        with pytest.raises(BenchError, match=message):
            run_live([config(**change)], stage.said.append, pool=stage.pool)
    assert stage.engines == []


def test_a_bad_cell_of_a_sweep_is_a_failure(stage, config):
    swept = sweep_live([config(), replace(config(), system="srpt")], stage.said.append, pool=stage.pool)
    assert swept.done == 1
    assert swept.outcomes[1].exit_code == Exit.MISSING

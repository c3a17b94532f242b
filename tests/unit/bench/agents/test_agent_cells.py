"""A run of agents from the command to its cell: host, relay and tables are real, engines are not."""

import json
import os
import signal
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from bench.agents import drive
from bench.agents.drive import job_of
from bench.errors import Exit, MissingError
from bench.live.cells import UNPREDICTED, run_live
from bench.run import Interrupted


def run(agents, config, **own):
    return run_live([config], agents.said.append, pool=agents.pool, **own)


def hosts():
    """Agent hosts that are children of this process."""
    mine = Path(f"/proc/{os.getpid()}/task")
    children = {pid for task in mine.iterdir() for pid in (task / "children").read_text().split()}
    return {pid for pid in children if b"agents.host" in Path(f"/proc/{pid}/cmdline").read_bytes()}


def test_a_run_of_agents_becomes_a_cell_like_any_other(agents, config):
    swept = run(agents, config(knobs={"live.front": "none", "cost.per_hour": "3.6"}))
    (result,) = swept.outcomes
    summary = result.summary
    assert summary["outcomes"] == {"finished": 3}
    assert "replies scripted, engine work real" in summary["badge"]
    found = summary["agents"]
    assert found["success"]["n"] == 3
    assert found["tokens"]["difference"] == found["tokens"]["calls_differ"] == 0
    assert found["tokens"]["engine"] == found["tokens"]["scripted"] > 0
    assert found["environment"]["leaks"] == []
    assert found["cost"]["unit"] == "engine-seconds"
    assert found["cost"]["price"]["per_program"] == pytest.approx(found["cost"]["per_program"] / 1000)
    kept = json.loads((result.folder / "agents.json").read_text())
    assert [row["task"] for row in kept["programs"]] == [t.name for t in swept.plans[0].tasks]
    totals = pd.read_parquet(result.folder / "totals.parquet")
    assert sum(kept["totals"]["cost"]["by_program"].values()) == pytest.approx(totals.busy_s.sum(), abs=1e-9)
    programs = pd.read_parquet(result.folder / "programs.parquet")
    parts = [c for c in programs if c.startswith("cp_")]
    assert (programs[parts].sum(axis=1) == programs.t_end - programs.t_arrive).all()
    assert (programs.cp_overhead_s > 0).all()
    assert swept.beside(agents.said.append) == ([], [UNPREDICTED])
    assert "price" not in json.loads((result.folder / "summary.json").read_text())["agents"]["cost"]
    again = run(agents, config()).outcomes[0]
    assert again.cached
    assert "price" not in again.summary["agents"]["cost"]
    assert not hosts()


def test_what_an_engine_decodes_beside_the_script_is_a_warning(agents, config):
    agents.options = {**agents.options}
    made = agents.make

    def longer(plan, folder, gpus):
        engines = made(plan, folder, gpus)
        for engine in engines:
            engine.more = 1
        return engines

    agents.make = longer
    summary = run(agents, config(n=1)).outcomes[0].summary
    tokens = summary["agents"]["tokens"]
    assert tokens["difference"] == tokens["calls"] == tokens["calls_differ"] > 0
    assert any("calls differ, 0.main.0 first" in warning for warning in summary["warnings"])


def test_threads_that_run_side_by_side_have_one_critical_path(agents, config):
    made = config(workload="agents:mapreduce", n=2, parameters={})
    (result,) = run(agents, made).outcomes
    programs = pd.read_parquet(result.folder / "programs.parquet")
    calls = pd.read_parquet(result.folder / "calls.parquet")
    assert (programs.threads > 3).all()
    assert (programs.cp_decode_s < programs.exec_s).all()
    assert set(calls[calls.thread.str.startswith("reduce")].parents) != {""}
    assert result.summary["agents"]["success"]["x"] == 2


def test_an_engine_that_dies_ends_the_run_with_its_last_words_and_nothing_is_left(agents, config):
    agents.options = {**agents.options, "answers": 34}  # 32 warm it up
    with pytest.raises(MissingError, match="Killed") as found:
        run(agents, config(parameters={"tasks": "game24", "seconds": "20"}))
    assert found.value.exit_code == Exit.MISSING
    assert not hosts()


def test_a_host_that_cannot_go_on_ends_the_run(agents, config, monkeypatch):
    monkeypatch.setattr(drive, "job_of", lambda *made: replace(job_of(*made), agent="nobody"))
    with pytest.raises(MissingError, match="no agent 'nobody'"):
        run(agents, config())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_the_host_and_keeps_what_is_finished(agents, config, number):
    done = config(n=1)
    run(agents, done)

    def stop(*_):
        os.kill(os.getpid(), number)

    with pytest.raises(Interrupted):
        run(agents, config(seed=2), progress=stop)
    assert not hosts()
    assert run(agents, done).outcomes[0].cached

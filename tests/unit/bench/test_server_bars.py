"""Parts d and e: bars that nothing tested are not met, and runs that do not count are shown."""

import math
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from bench.drivers.audit import Audit
from bench.drivers.live_records import LiveCall
from bench.errors import InvalidRun
from bench.fidelity import server_page, server_runs, server_study
from bench.fidelity.part import Options
from bench.fidelity.parts import d_server, e_agents
from bench.fidelity.server_calls import Call, numbers
from bench.fidelity.server_compare import Pair, Said, rows
from bench.fidelity.server_probes import Probed
from bench.fidelity.server_runs import Measured
from systems.engines.vllm_virtual import EngineUnavailable

CELL = ("low", "fcfs")
SAID, PROBED = Said(3, 0, 3, 2), Probed(0.0, 0.0, 0.0, 2, 40, 384, 0)
QUIET, SLOW = Audit((0.0, 0.0), (0.0, 0.0), 0.1, 3), Audit((0.0, 0.1), (0.0, 0.0), 0.1, 3)


def call(seconds, preemptions=1):
    return Call(0, "", 0, 0.0, 1.0, 1.0 + 9 * seconds, 10, 0.0, 1.0, preemptions, 0)


def measured(seconds, audit=QUIET, late=(), preemptions=1):
    gone = [{"tpot": one} for one in late]
    calls = [call(seconds, preemptions)]
    return Measured(calls, {}, audit, 0.01, 2.0, 3.0, 7, 0.5, [7], late=gone)


def study(runs, ours=0.012, pairs=(), said=SAID, probed=PROBED):
    simulated = {CELL: [numbers([call(ours)]) for _ in runs]}
    found = rows({CELL: [numbers(run.calls) for run in runs]}, simulated)
    return SimpleNamespace(
        measured={CELL: runs}, simulated=simulated, rows=found, pairs=list(pairs), said=said, probed=probed,
        steps={CELL: 0.1}, setup=d_server.SETUP, version="0", capacity=9.0,
    )  # fmt: skip


def bars(found, monkeypatch):
    monkeypatch.setattr(server_study, "study", lambda *_: found)
    monkeypatch.setattr(server_study, "page", lambda _: "")
    monkeypatch.setattr(server_study, "_plain", lambda _: {})
    return server_study.outcome(d_server.SETUP, Options(Path(), Path()), print).bars


def test_a_tpot_that_is_no_number_is_not_dropped(monkeypatch):
    found = study([measured(0.012)])
    nothing = found.rows[0]._replace(error={"tpot": math.nan})
    found.rows = [found.rows[0], nothing]
    worst = bars(found, monkeypatch)[0]
    assert math.isnan(worst.got)
    assert not worst.met


@pytest.mark.parametrize(
    ("simulated", "got", "met"), [((0.2, 0.1), 0, True), ((0.2, -0.1), 1, False), ((0.2, 0.0), 0, True)]
)
def test_a_pair_predicted_the_other_way_is_missed(simulated, got, met, monkeypatch):
    pairs = [Pair("low", "a", "b", 0.2, 0.1, 0.3, ours) for ours in simulated]
    bar = bars(study([measured(0.012)], pairs=pairs), monkeypatch)[1]
    assert (bar.got, bar.met) == (got, met)
    assert bar.what.endswith("of 2 that separate")


def test_pairs_that_the_simulation_cannot_tell_apart_test_nothing(monkeypatch):
    pairs = [Pair("low", "a", "b", 0.2, 0.1, 0.3, 0.0)]
    bar = bars(study([measured(0.012)], pairs=pairs), monkeypatch)[1]
    assert math.isnan(bar.got)
    assert not bar.met
    assert bar.what.endswith("of 1 that separate (all alike in the simulation)")


def test_no_pair_that_separates_is_no_bar_that_is_met(monkeypatch):
    pairs = [Pair("low", "a", "b", 0.2, -0.1, 0.3, 0.2)]
    found = study([measured(0.012)], pairs=pairs)
    bar = bars(found, monkeypatch)[1]
    assert not bar.met
    assert bar.what.endswith("of 0 that separate (not tested)")
    assert "**not tested**" in server_page._pairs(found)


@pytest.mark.parametrize(
    ("found", "met"),
    [
        (study([measured(0.012)]), True),
        (study([measured(0.012, preemptions=0)]), False),
        (study([measured(0.012)], probed=Probed(0.0, 0.0, 0.0, 0, 0, 384, 0)), False),
        (study([measured(0.012)], probed=Probed(0.0, 0.0, 0.0, 2, 40, 0, 0)), False),
        (study([measured(0.012)], said=Said(0, 0, 3, 1)), False),
        (study([measured(0.012)], said=Said(3, 1, 4, 2)), False),
    ],
)
def test_replies_are_the_same_only_if_something_was_preempted_and_probed(found, met, monkeypatch):
    assert bars(found, monkeypatch)[2].met == met


def test_runs_that_do_not_count_are_shown_with_what_they_would_change():
    found = study([measured(0.012), measured(0.012, SLOW), measured(0.010, late=[0.008, 0.006, 0.005])])
    text = server_page._rows(found)
    assert "| 12.00, 12.00?, 10.00 |" in text
    assert "1 suspect" in text
    # kept: 0, 0, 20 %; with the late ones 50, 100 and 140 % as well
    assert (
        "3 runs with a late client were made again and do not count: low fcfs TPOT 8.00, 6.00, 5.00" in text
    )
    assert "(with them the error is 35.0%)" in text


def test_a_run_in_which_calls_were_given_up_is_invalid_by_name(monkeypatch):
    cut = LiveCall(0, "", 0, "low0.0..0", 0.0, 0.0, 0.0, math.nan, 1.0, 5, (), "cut")

    async def drive(*_):
        return SimpleNamespace(calls=[cut])

    monkeypatch.setattr(server_runs, "_drive", drive)
    with pytest.raises(InvalidRun, match=r"run low0: 1 calls were given up, low0\.0\.\.0 first"):
        server_runs.measure(SimpleNamespace(), 9, "low0", [], [])


def test_the_parts_are_one_class_with_two_set_ups(monkeypatch):
    names = [part.PART.name for part in (d_server, e_agents)]
    assert names == ["d-server", "e-agents"]
    monkeypatch.setenv("BENCH_VLLM_PYTHON", "nowhere")
    for part in (d_server, e_agents):
        why = part.PART.missing(Options(Path(), Path()))
        assert why.startswith("a vLLM server needs vLLM, but BENCH_VLLM_PYTHON names nowhere")
        assert "vllm-virtual" not in why


def test_another_vllm_or_machine_is_measured_anew(tmp_path, monkeypatch):
    own = server_runs.served_by(Path(sys.executable))
    assert own["python"] == sys.executable
    with pytest.raises(EngineUnavailable, match="cannot run"):
        server_runs.served_by(tmp_path)
    paths = {server_runs.Kept(tmp_path, {**own, "vllm": v}).path("pilot") for v in ("0.31.0", "0.32.0")}
    monkeypatch.setattr(server_runs, "hardware", lambda: {"cpu": "another"})
    paths.add(server_runs.Kept(tmp_path, {**own, "vllm": "0.32.0"}).path("pilot"))
    assert len(paths) == 3


def test_what_decides_a_run_is_there(monkeypatch):
    for name in server_runs._DECIDING:
        assert (server_runs._ROOT / name).exists(), name
    before = server_runs._code()
    monkeypatch.setattr(server_runs, "_DECIDING", server_runs._DECIDING[1:])
    assert server_runs._code() != before

"""Parts d and e without a server: what is compared, how, and that a program can be slowed."""

import json
import math
import os
from dataclasses import replace
from random import Random

import pytest

from bench.calibration.steps import StepLog, StepRow
from bench.drivers.audit import Audit
from bench.drivers.completions import Response
from bench.drivers.virtual import drive
from bench.errors import InvalidRun
from bench.fidelity import server_runs, server_study
from bench.fidelity.part import Options
from bench.fidelity.parts.d_server import SETUP as D
from bench.fidelity.parts.e_agents import SETUP as E
from bench.fidelity.server_calls import Call, Numbers, as_json, from_json, logged, numbers, request_name
from bench.fidelity.server_compare import Pair, pairs, rows, said
from bench.fidelity.server_predict import at_boundaries, predict, slowed
from bench.fidelity.server_probes import Probed, compare, first_preemptions
from bench.fidelity.server_runs import Kept, Measured
from bench.fidelity.server_study import capacity
from bench.offline import offline
from bench.records import MemorySink
from systems.catalog import build_router, build_scheduler, build_table, load_system
from systems.engines.sim import SimEngine
from systems.latency.calibration import Calibration
from tests.latency_models import LinearLatency
from vocabulary import EngineConfig, Step
from workloads.base import ProgramSpec
from workloads.session import TimedOut


def call(program=0, number=0, arrive=0.0, first=1.0, end=3.0, output=5, preemptions=0):
    return Call(program, "", number, arrive, first, end, output, 0.5, end - arrive - 0.5, preemptions, 16)


def test_numbers_of_a_run():
    found = numbers([call(), call(0, 1, 5.0, 5.5, 6.5, 3), call(1, 0, 2.0, 4.0, 4.0, 1, preemptions=2)])
    assert found.tpot == pytest.approx((0.5 + 0.5) / 2)
    assert found.ttft == pytest.approx((1.0 + 0.5 + 2.0) / 3)
    assert found.program == pytest.approx((6.5 + 2.0) / 2)
    assert found[4:] == (3, 2, 1, 48)
    assert math.isnan(numbers([call(output=1)]).tpot)


def test_calls_come_back_from_json():
    calls = [call(), call(3, 1)]
    assert from_json(json.loads(json.dumps(as_json(calls)))) == calls
    assert Call(3, "0.1", 2, *calls[0][3:]).key == "3.0_1.2"


def log_row(name, **other):
    row = {"request_id": name, "aborted": False, "t_arrive": 1.0, "t_first_token": 2.0, "t_end": 3.0,
           "output_tokens": 4, "wait_s": 0.1, "prefill_s": 0.5, "reprefill_s": 0.0, "decode_s": 1.4,
           "preemptions": 1, "cached_tokens": 32}  # fmt: skip
    return json.dumps({**row, **other}) + "\n"


def test_a_run_of_the_call_log(tmp_path):
    path = tmp_path / "calls.jsonl"
    path.write_text(log_row("cmpl-low0.7.0_1.2-0-ab12") + log_row("cmpl-other.7..0-0-ab12") + log_row("x"))
    (found,) = logged(path, "low0")
    assert (found.key, found.exec_s, found.preemptions) == ("7.0_1.2", 1.9, 1)
    path.write_text(log_row("cmpl-low0.7..0-0-ab12", aborted=True))
    with pytest.raises(InvalidRun, match=r"call low0\.7\.\.0 was aborted"):
        logged(path, "low0")
    assert request_name("chatcmpl-77") == ("", "", "", "")


def of(tpot, program):
    return Numbers(tpot, 0.5, 0.1, program, 10, 5, 0, 0)


def test_the_error_is_the_median_over_the_rounds():
    (row,) = rows(
        {("low", "fcfs"): [of(0.10, 1.0), of(0.11, 1.0), of(0.20, 1.0)]},
        {("low", "fcfs"): [of(0.11, 1.2), of(0.11, 1.2), of(0.18, 1.2)]},
    )
    assert row.error["tpot"] == pytest.approx(0.1)  # of 10, 0 and 10 %
    assert row.error["program"] == pytest.approx(0.2)
    assert (row.measured["tpot"], row.simulated["tpot"]) == (0.11, 0.11)


def test_what_another_run_of_the_same_cell_would_be_off_by():
    cell = ("low", "fcfs")
    (row,) = rows({cell: [of(0.1, 1.0), of(0.2, 1.0)]}, {cell: [of(0.1, 1.0)] * 2})
    assert row.again["tpot"] == pytest.approx((0.5 + 1.0) / 2)
    assert row.again["program"] == 0.0
    (one,) = rows({cell: [of(0.1, 1.0)]}, {cell: [of(0.1, 1.0)]})
    assert math.isnan(one.again["tpot"])


@pytest.mark.parametrize(
    ("theirs", "ours", "separate", "missed"),
    [
        ((2.0, 2.1, 2.05), 1.5, True, False),
        ((2.0, 2.1, 2.05), 0.9, True, True),
        ((2.0, 2.1, 2.05), 1.0, True, False),
        ((0.5, 2.0, 1.1), 0.9, False, False),
    ],
)
def test_a_pair_that_separates_must_be_predicted(theirs, ours, separate, missed):
    measured = {("high", "a"): [of(0.1, x) for x in theirs], ("high", "b"): [of(0.1, 1.0)] * 3}
    simulated = {("high", "a"): [of(0.1, ours)] * 3, ("high", "b"): [of(0.1, 1.0)] * 3}
    (pair,) = pairs(measured, simulated)
    assert (pair.separate, pair.missed) == (separate, missed)


def test_one_run_separates_nothing():
    measured = {("high", "a"): [of(0.1, 2.0)], ("high", "b"): [of(0.1, 1.0)]}
    (pair,) = pairs(measured, measured)
    assert math.isnan(pair.low)
    assert not pair.separate
    assert Pair("high", "a", "b", 1.0, 0.5, 1.5, -0.1).missed
    alike = Pair("high", "a", "b", 1.0, 0.5, 1.5, 0.0)
    assert alike.unseen
    assert not alike.missed


def test_replies_are_compared_by_call():
    found = said([{"0..0": "x", "0..1": "y"}, {"0..0": "x", "0..1": "z"}, {"0..0": "x", "1..0": "w"}])
    assert found == (2, 1, 4, 3)


def test_capacity_is_that_of_the_full_part():
    def step(start, end, tokens):
        return StepRow(start, end, end - start, (1, tokens, 1, 0, 0), ("a",))

    steps = [step(1.0, 2.0, 300), step(2.0, 3.0, 450), step(3.0, 9.0, 250)]
    assert capacity(StepLog({}, steps), 100) == pytest.approx(75 / 2.0)


# Programs, slowed


def run(spec):
    system = load_system("vllm-opt")
    table, sink = build_table(system), MemorySink()
    engine = SimEngine(0, EngineConfig(kv_blocks=1000), build_scheduler(system, table), LinearLatency())
    drive([spec], times=[0.0], engines=[engine], router=build_router(system), table=table, sink=sink)
    return sink


async def agent(s):
    async def branch(fork):
        return await fork.call(new=3, output=2)

    await s.call(new=10, output=4)
    await s.tool("search", 0.5)
    await s.call(new=5, output=2)
    await s.join(*(branch(s.fork()) for _ in range(3)))
    try:
        await s.timeout(1e-6, branch(s.fork()))
    except TimedOut:
        await s.call(new=1, output=1)


def test_a_slowed_program_waits_before_each_call():
    spec = ProgramSpec(0, "agent", 1, agent)
    plain, slow, other = run(spec), run(slowed(spec, 0.25)), run(slowed(spec, 0.25, seed=1))
    # eight lags: the first up to a half, the three branches' at the same time (the sum counts all)
    assert 7 * 0.125 < slow.programs[0].think_s < 7 * 0.375 + 0.125
    assert slow.programs[0].think_s != other.programs[0].think_s
    assert slow.programs[0].think_s == run(slowed(spec, 0.25)).programs[0].think_s
    assert slow.programs[0].tool_s == plain.programs[0].tool_s == 0.5
    done = [
        sorted((c.call.thread, c.call.index, c.output_tokens) for c in s.calls if not c.aborted)
        for s in (plain, slow)
    ]
    assert done[0] == done[1]
    took = [s.programs[0].t_end for s in (plain, slow)]
    assert 3 * 0.125 < took[1] - took[0] < 4 * 0.375
    assert run(slowed(spec, 0.0)).programs[0].t_end == pytest.approx(took[0])


def test_who_comes_during_a_step_is_taken_in_at_its_end():
    steps = [Step(1.0, 0.5, ()), Step(1.5, 0.5, ()), Step(4.0, 1.0, ())]
    for arrive, seen in (
        (0.5, 0.5),
        (1.0, 1.0),
        (1.25, 1.5),
        (1.5, 1.5),
        (1.75, 2.0),
        (3.0, 3.0),
        (4.5, 5.0),
    ):
        (found,) = at_boundaries([call(arrive=arrive, first=6.0, end=7.0)], steps)
        assert found.t_arrive == seen
        assert found.exec_s + found.wait_s == pytest.approx(found.t_end - found.t_arrive)


@pytest.mark.parametrize("setup", [D, E])
def test_the_set_ups_fit_their_engines_and_mean_what_they_say(setup):
    programs, times = setup.programs(1, n=60)
    assert times == [0.0] * 60
    facts = offline(programs)
    assert facts.longest <= min(setup.max_model_len, 32 * setup.kv_blocks)
    assert facts.fixed
    assert setup.knobs("fcfs") == {}
    assert setup.knobs("plas")["bounds"][:2] == [64 * setup.token_scale, 256 * setup.token_scale]
    engine = setup.engine()
    assert engine.kv_blocks == 2 * setup.kv_blocks
    quick = setup.quick()
    assert quick.identity(1) != setup.identity(1) != setup.identity(2)


@pytest.mark.parametrize("setup", [D, E])
def test_schedulers_differ_in_the_simulation_and_preempt(setup):
    calibration = Calibration(
        "t", "linear", "tiny-llama", "cpu", coefficients={"step": 5.0, "token": 0.1, "row": 0.2},
        kv_blocks=1, max_model_len=2048,
    )  # fmt: skip
    rate = {"d-server": 30.0, "e-agents": 4.0}[setup.name]
    programs, times = setup.quick().programs(1, rate)
    found = {s: numbers(predict(setup, s, calibration, programs, times, 0.01)) for s in setup.schedulers}
    assert found["atlas"].preempted > 0
    assert found["atlas"].program != found["fcfs"].program
    assert len({n.calls for n in found.values()}) == 1
    assert (found["plas"] == found["mlfq"]) == (setup.name == "d-server")  # one call per program


# Kept, and probed


def test_what_is_kept_is_found_under_the_same_configuration_only(tmp_path):
    kept = Kept(tmp_path, D.identity(1))
    assert kept.get("fit") is None
    kept.put("fit", {"x": 1.5})
    assert Kept(tmp_path, D.identity(1)).get("fit") == {"x": 1.5}
    assert Kept(tmp_path, D.identity(2)).get("fit") is None
    assert Kept(tmp_path, E.identity(1)).get("fit") is None
    assert kept.get("pilot") is None


def test_a_measured_run_comes_back(tmp_path):
    run = Measured(
        [call()],
        {"0..0": "ab"},
        Audit((0.0, 0.1), (0.0, 0.2), 0.5, 3),
        0.01,
        2.0,
        3.0,
        7,
        0.5,
        [7, 9, 8, 100, 3],
    )
    kept = Kept(tmp_path, {})
    kept.put("run", run.as_json())
    assert Measured.parse(kept.get("run")) == run


def reply(tokens, logprobs):
    return Response(tuple(tokens), 3, len(tokens), 0.0, 1.0, 1.0, tuple(logprobs))


def test_moves_of_log_probabilities_before_and_after_a_preemption():
    alone = [reply([1, 2, 3], [-1.0, -2.0, -3.0]), reply([4, 5, 6], [-1.0, -1.0, -1.0])]
    batched = [reply([1, 2, 3], [-1.0, -2.5, -3.0]), alone[1]]
    displaced = [reply([1, 2, 9], [-1.25, -2.0, -4.0]), reply([4, 5, 6], [-9.0, -1.0, -1.0])]
    found = compare(alone, batched, displaced, {0: 2}, 40)
    assert found == Probed(0.5, 0.25, 1.0, calls=1, recomputed=40, tokens=12, differ=1)
    none = compare(alone, batched, alone, {}, 0)
    assert math.isnan(none.resumed)
    assert math.isnan(Probed.parse(json.loads(json.dumps({**none.as_json(), "resumed": None}))).resumed)


def test_tokens_before_the_first_preemption_come_from_the_step_log(tmp_path):
    a, other = "cmpl-displaced.0..0-0-ab", "cmpl-short.0..0-0-ab"
    lines = [
        {"kv_blocks": 1},
        {"calls": [[a, 0, 5, 0]], "preempted": []},
        {"calls": [[a, 5, 5, 1], [other, 0, 5, 1]], "preempted": []},
        {"calls": [[a, 10, 1, 1]], "preempted": [other]},
        {"calls": [[other, 0, 5, 1]], "preempted": [a]},
        {"calls": [[a, 0, 12, 1]], "preempted": []},
        {"calls": [[other, 0, 5, 1]], "preempted": [a]},
    ]
    path = tmp_path / "steps.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))

    class Server:
        steps = path

    assert first_preemptions(Server, "displaced") == {0: 2}


# The whole study, with a server that is simulated


def test_the_study_runs_to_its_page_and_is_not_run_twice(tmp_path, monkeypatch):
    """Runs come from the simulator under other step times: so much is the error, and nothing else is."""
    made = []
    truth = Calibration(
        "truth", "linear", "tiny-llama", "cpu", coefficients={"step": 5.0, "token": 0.1, "row": 0.2},
        kv_blocks=1, max_model_len=2048,
    )  # fmt: skip

    def measured(server, vocabulary, name, programs, times):
        made.append(name)
        calls = predict(setup, server, truth, programs, times, 0.01)
        said = {c.key: c.key for c in calls}
        steps = {"steps": 100, "step_s": 1.0, "step_units": [100, 1000, 500, 0, 0]}
        return Measured(calls, said, Audit((0.0, 0.0), (0.0, 0.0), 0.1, 3), 0.01, 2.0, 3.0, **steps)

    def log(server, run):
        rng, rows, at = Random(1), [], 0.0
        for _ in range(300):
            tokens, n = rng.randint(1, 400), rng.randint(1, 16)
            seconds = 0.005 + 0.0001 * (tokens + n) + 0.0002 * n
            rows.append(StepRow(at, at + seconds, seconds, (1, tokens + n, n, 10 * n, 5), ("a",)))
            at += seconds
        return StepLog({"vllm": "0.0", "kv_blocks": 64, "block_size": 32, "max_model_len": 2048}, rows)

    setup = replace(D.quick(), repeats=2, schedulers=("fcfs", "mlfq", "atlas"))
    monkeypatch.setattr(server_study, "measure", measured)
    monkeypatch.setattr(server_study, "steps_of", log)
    monkeypatch.setattr(server_study, "vllm_python", lambda _: "python")
    monkeypatch.setattr(server_study, "served_by", lambda _: {"vllm": "0"})
    monkeypatch.setattr(server_study, "probe", lambda *_: Probed(0.0, 0.0, 1e-6, 2, 40, 384, 0))
    monkeypatch.setattr(server_study.Servers, "get", lambda _, scheduler: scheduler)
    options = Options(tmp_path, tmp_path / "work")
    found = server_study.outcome(setup, options, lambda _: None)
    assert [bar.met for bar in found.bars] == [True, False, False]
    assert found.bars[2].what.endswith("(not tested)")  # no call was preempted
    assert (
        "of 0 that separate (not tested)" in found.bars[1].what
    )  # so nothing was tested, and nothing is met
    assert found.bars[0].got < 3.0
    assert len(made) == 1 + 2 * (1 + 2 * 3)
    assert made[1] == "fit0"
    assert made[2:8] == ["fcfs_low0", "mlfq_low0", "atlas_low0", "fcfs_high0", "mlfq_high0", "atlas_high0"]
    assert made[8:12] == ["fit1", "mlfq_low1", "atlas_low1", "fcfs_low1"]
    assert found.validations[0].metric == "TPOT"
    for words in ("| high | atlas |", "separate", "resumed by recompute 1e-06", "0 were not answered"):
        assert words in found.page
    again = server_study.outcome(setup, options, lambda _: None)
    assert len(made) == 15
    assert again.page == found.page
    server_study.outcome(setup, replace(options, seed=2), lambda _: None)
    assert len(made) == 30


def test_the_servers_get_their_cores_before_the_client_takes_its_own(tmp_path, monkeypatch):
    """Whoever is pinned first decides what the next one sees: both must be told from the free machine."""
    seen = []

    class Server:
        def __init__(self, options, folder):
            self.options, self.steps = options, folder / "steps.jsonl"

        def begin(self):
            seen.append((self.options.model_cores, self.options.other_cores, os.sched_getaffinity(0)))
            self.steps.parent.mkdir(parents=True)
            self.steps.write_text('{"kv_blocks": 1, "block_size": 32, "max_model_len": 9, "vllm": "0"}\n')

        def ready(self):
            assert os.sched_getaffinity(0) == before

        def stop(self):
            seen.append("stopped")

    async def warm(server, setup, ids):
        seen.append(os.sched_getaffinity(0))

    before = os.sched_getaffinity(0)
    monkeypatch.setattr(server_runs, "VllmServer", Server)
    monkeypatch.setattr(server_runs, "_warm", warm)
    first, others = server_runs.cores()
    with server_runs.Servers(D.quick(), tmp_path, lambda _: None) as servers:
        servers.get("atlas")
    own = set(others) or before
    assert seen == [(first, others, before)] * 2 + [own] * 2 + ["stopped"] * 2
    assert os.sched_getaffinity(0) == before


def test_a_run_with_a_late_client_is_made_again_and_counted(monkeypatch):
    names, late = [], 2

    def once(server, vocabulary, name, programs, times):
        names.append(name)
        lag = 9.0 if len(names) <= late else 0.0
        return Measured([call()], {}, Audit((lag, lag), (0.0, 0.0), 0.1, 3), 0.01, 2.0, 3.0, 7, 0.5, [7])

    monkeypatch.setattr(server_runs, "_measure", once)
    found = server_runs.measure(None, 9, "low0", [], [])
    assert found.name == "low0again2"
    assert [(one["calls"], one["audit"]["send_lag"]) for one in found.late] == [(1, (9.0, 9.0))] * 2
    assert names == ["low0", "low0again1", "low0again2"]
    names.clear()
    late = 3
    with pytest.raises(InvalidRun, match="could not keep up, 3 times"):
        server_runs.measure(None, 9, "low0", [], [])

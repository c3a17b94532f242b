"""Deployments that are kept up: shared where they can be, stopped whatever happens."""

import signal
import sys
from dataclasses import replace

import pytest

from bench.errors import InvalidRun, MissingError
from bench.live.boundaries import Boundaries
from bench.live.deployment import make_engines
from bench.live.plan import live_plan
from bench.live.room import ENGINE_GB, VISIBLE, Machine, gpus_here
from bench.memory import free_gb
from bench.signals import terminated_as_interrupted
from systems.engines.vllm_virtual import EngineUnavailable
from tests.unit.bench.live.conftest import SERVED
from vocabulary import Step


def plans(config, *systems, **changes):
    own = {"live.client": "whole"}
    return [live_plan(config(system=system, knobs=own, **changes)) for system in systems]


class Front:
    """A front that is none."""

    def __init__(self, fails=False):
        self.fails, self.begun, self.stopped, self.url = fails, 0, 0, "http://127.0.0.1:1"

    def begin(self):
        self.begun += 1

    def ready(self, limit_s=1.0):
        if self.fails:
            raise EngineUnavailable("front: it ended; its last words: no")

    def check(self):
        pass

    def facts(self):
        return {"kind": "front"}

    def stop(self):
        self.stopped += 1


def test_engines_are_shared_by_systems_that_differ_in_their_front_and_one_front_is_up(stage, config):
    fronts = []
    pool = stage.pool(front=lambda *_: fronts.append(Front()) or fronts[-1])
    first, second, third = plans(config, "vllm-opt", "session-pinned", "mlfq", n=2)
    with pool:
        deployments = []
        for plan in (first, second, second, third, first):
            deployments.append(pool.get(plan))
            assert [front for front in fronts if front.begun and not front.stopped] == [deployments[-1].front]
    assert deployments[0].engines == deployments[1].engines
    assert deployments[0] is deployments[4]  # so that no two of its runs have the same name
    assert deployments[1] is deployments[2]
    assert len(stage.engines) == 2
    assert [front.stopped for front in fronts] == [1, 1, 1, 1]


def test_the_one_used_longest_ago_makes_room(stage, config):
    pool = stage.pool(machine=Machine(most=2))
    first, second, third = plans(config, "vllm-opt", "mlfq", "atlas", n=2)
    with pool:
        for plan in (first, second, first, third):
            pool.get(plan)
        pool.get(first)
        assert len(stage.engines) == 3  # first stayed, second went
        pool.get(second)
        assert len(stage.engines) == 4


def test_a_front_that_does_not_start_leaves_nothing(stage, config):
    front = Front(fails=True)
    (plan,) = plans(config, "vllm-opt", n=2)
    with stage.pool(front=lambda *_: front) as pool:
        with pytest.raises(MissingError, match="its last words: no"):
            pool.get(plan)
        assert front.stopped == 1
    assert stage.engines[0]._loop is None


def test_an_engine_that_does_not_start_stops_those_that_began_with_it(stage, config):
    def make(plan, *asked):
        made = stage.make(plan, *asked)
        if plan.spec.scheduler == "mlfq":
            made[0].begin = lambda: (_ for _ in ()).throw(EngineUnavailable("no memory"))
        return made

    told = pytest.raises(MissingError, match="engine-0: no memory")
    with stage.pool(engines=make) as pool, told:
        pool.prepare(plans(config, "vllm-opt", "mlfq", n=2))
    assert stage.engines[0]._loop is None


def test_a_deployment_that_cannot_be_made_stops_its_front(stage, config, monkeypatch):
    front = Front()
    (plan,) = plans(config, "vllm-opt", n=2)

    def no_head(*_):
        raise InvalidRun("steps.jsonl: no first line")

    monkeypatch.setattr("bench.live.pool.Deployment", no_head)
    with stage.pool(front=lambda *_: front) as pool, pytest.raises(InvalidRun, match="no first line"):
        pool.get(plan)
    assert (front.begun, front.stopped) == (1, 1)


# -- room ------------------------------------------------------------------------------


def up(stage):
    return sum(engine._loop is not None for engine in stage.engines)


@pytest.mark.parametrize(
    ("gb", "most"),
    [(6.0, 2), (3.6, 1), (1.0, 1), (None, 1)],
    ids=["two fit", "one fits", "none fits", "cannot be told"],
)
def test_as_many_engines_are_up_as_memory_has_room_for(stage, config, gb, most):
    """``gb`` are free while none is up; each takes what it takes."""
    machine = Machine(free_gb=lambda: None if gb is None else gb - ENGINE_GB * up(stage))
    first, second, third = plans(config, "vllm-opt", "mlfq", "atlas", n=2)
    seen = []
    with stage.pool(machine=machine) as pool:
        pool.prepare([first, second, third])
        seen.append(up(stage))
        for plan in (first, second, third, first):
            pool.get(plan)
            seen.append(up(stage))
    assert max(seen) == most
    assert any("no room for more engines" in line for line in stage.said)
    assert not any("may be no room" in line for line in stage.said)


def test_replicas_start_together_even_where_memory_may_not_do_and_that_is_said(stage, config):
    (two,) = plans(config, "vllm-opt", n=2, replicas=2)
    with stage.pool(machine=Machine(free_gb=lambda: 4.0)) as pool:
        pool.get(two)
        assert up(stage) == 2
    assert "2 engines start, though there may be no room for so many" in stage.said


def test_the_cgroup_limits_memory(tmp_path):
    (tmp_path / "meminfo").write_text("MemAvailable:   64000000 kB\n")
    assert free_gb(tmp_path / "meminfo", tmp_path) == pytest.approx(65.5, abs=0.1)
    (tmp_path / "memory.max").write_text("4000000000\n")
    (tmp_path / "memory.current").write_text("1000000000\n")
    assert free_gb(tmp_path / "meminfo", tmp_path) == 3.0
    assert free_gb(tmp_path / "no", tmp_path / "no") is None


@pytest.fixture
def gpu(monkeypatch):
    """Plans for a machine with GPUs."""
    on_gpu = replace(SERVED, machine="A GPU", kind="gpu", block_size=16)
    monkeypatch.setattr("bench.live.plan.served", lambda config, options: on_gpu)
    monkeypatch.setattr("bench.live.plan.device", lambda: "gpu")


def on(gpus):
    return Machine(free_gb=lambda: 500.0, gpus=lambda: gpus)


def gpu_plans(config, *systems, **changes):
    own = {"live.client": "whole", "engine.kv_blocks": "256", "engine.max_num_seqs": "4"}
    return [live_plan(config(system=system, knobs=own, n=2, **changes)) for system in systems]


def test_a_gpu_has_one_engine_at_a_time(stage, config, gpu):
    first, second = gpu_plans(config, "vllm-opt", "mlfq")
    with stage.pool(machine=on(("0",))) as pool:
        pool.prepare([first, second])
        for plan in (first, second, first):
            pool.get(plan)
            assert up(stage) == 1
    assert stage.gpus == [["0"]] * 3


def test_engines_get_gpus_of_their_own(stage, config, gpu):
    first, second = gpu_plans(config, "vllm-opt", "mlfq")
    (two,) = gpu_plans(config, "vllm-opt", replicas=2)
    with stage.pool(machine=on(("3", "5", "GPU-7"))) as pool:
        pool.prepare([first, second])  # together
        assert stage.gpus == [["3"], ["5"]]
        pool.get(two)  # the one used longest ago goes
        assert up(stage) == 3
        assert sorted(one for gpus in stage.gpus[1:] for one in gpus) == ["3", "5", "GPU-7"]
    (four,) = gpu_plans(config, "vllm-opt", replicas=4)
    with stage.pool(machine=on(("0", "1"))) as pool, pytest.raises(MissingError, match="4 GPUs, there are 2"):
        pool.get(four)


def test_servers_and_containers_see_the_gpus_they_were_dealt(config, stage, gpu, tmp_path):
    own = {"live.client": "whole", "engine.kv_blocks": "256"}
    plan = live_plan(config(replicas=2, model="org/model", knobs={**own, "live.python": sys.executable}))
    servers = make_engines(plan, tmp_path, ["0", "3"])
    assert [server._extra for server in servers] == [{VISIBLE: "0"}, {VISIBLE: "3"}]
    plan = live_plan(config(replicas=2, model="org/model", knobs={**own, "live.how": "docker"}))
    assert [one.container.gpus for one in make_engines(plan, tmp_path, ["0", "3"])] == ["0", "3"]


def test_gpus_that_may_be_used(monkeypatch, tmp_path):
    fake = tmp_path / "nvidia-smi"
    fake.write_text("#!/bin/sh\nprintf '0\\n1\\n'\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv(VISIBLE, raising=False)
    assert gpus_here.__wrapped__() == ("0", "1")
    monkeypatch.setenv(VISIBLE, "2, GPU-7")
    assert gpus_here.__wrapped__() == ("2", "GPU-7")
    monkeypatch.setenv(VISIBLE, "")
    with pytest.raises(MissingError, match="names none"):
        gpus_here.__wrapped__()


def test_containers_of_runs_that_are_gone_are_swept_once(stage, config):
    swept = []
    own = {"live.client": "whole", "live.how": "docker"}
    asked = [live_plan(config(system=system, knobs=own, n=2)) for system in ("vllm-opt", "mlfq")]
    with stage.pool(sweep=lambda: swept.append(1) or ["bench-7-engine-0"]) as pool:
        pool.get(*plans(config, "vllm-opt", n=2))
        assert swept == []
        for plan in asked:
            pool.get(plan)
    assert swept == [1]
    assert [line for line in stage.said if "bench-7-engine-0" in line]


def test_a_handler_is_ours_inside_and_what_is_ignored_stays_so(monkeypatch):
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    interrupt = signal.getsignal(signal.SIGINT)
    try:
        with terminated_as_interrupted():
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN  # nohup
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(signal.SIGTERM)
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # as in a shell's background
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(signal.SIGTERM)
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    finally:
        signal.signal(signal.SIGINT, interrupt)
        signal.signal(signal.SIGHUP, before)


def test_calls_are_taken_in_between_two_steps():
    engine = Boundaries([Step(1.0, 0.5, ((1, 1),)), Step(1.5, 0.25, ((1, 1),)), Step(3.0, 1.0, ((1, 1),))])
    assert [engine.late(t) for t in (0.5, 1.0, 1.25, 1.5, 1.625, 2.0, 3.5)] == [
        0.0,
        0.0,
        0.25,
        0.0,
        0.125,
        0.0,
        0.5,
    ]

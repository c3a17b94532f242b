"""Deployments that are kept up: shared where they can be, stopped whatever happens."""

import pytest

from bench.errors import MissingError
from bench.live.boundaries import Boundaries
from bench.live.plan import live_plan
from bench.live.pool import fitting_engines
from systems.engines.vllm_virtual import EngineUnavailable
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


def test_engines_are_shared_by_systems_that_differ_in_their_front(stage, config):
    fronts = []
    pool = stage.pool(front=lambda *_: fronts.append(Front()) or fronts[-1])
    first, second, third = plans(config, "vllm-opt", "session-pinned", "mlfq", n=2)
    with pool:
        deployments = [pool.get(plan) for plan in (first, second, third, first)]
    assert deployments[0].engines == deployments[1].engines
    assert deployments[0] is deployments[3]
    assert deployments[0].front is not deployments[1].front
    assert len(stage.engines) == 2
    assert [front.stopped for front in fronts] == [1, 1, 1]


def test_the_one_used_longest_ago_makes_room(stage, config):
    pool = stage.pool(room=2)
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
    def make(plan, folder):
        made = stage.make(plan, folder)
        if plan.spec.scheduler == "mlfq":
            made[0].begin = lambda: (_ for _ in ()).throw(EngineUnavailable("no memory"))
        return made

    told = pytest.raises(MissingError, match="engine-0: no memory")
    with stage.pool(engines=make, room=4) as pool, told:
        pool.prepare(plans(config, "vllm-opt", "mlfq", n=2))
    assert stage.engines[0]._loop is None


def test_there_is_room_for_at_least_one():
    assert fitting_engines() >= 1


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

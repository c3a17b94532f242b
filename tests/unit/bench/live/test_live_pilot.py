"""How many programs a pilot has, of which knobs, and when it is measured."""

import pytest

from bench.errors import InvalidRun
from bench.live import pilot as pilots
from bench.live.cells import sweep_live
from bench.live.pilot import MOST, pilot_plan


@pytest.mark.parametrize(
    ("asked", "count"),
    [
        ({"n": 6}, 6),
        ({"n": 100}, MOST),
        ({"n": None}, MOST),
        ({"n": None, "horizon": 5.0, "rate": 2.0}, 10),
        ({"n": None, "horizon": 500.0, "rate": 2.0}, MOST),
        ({"n": None, "horizon": 30.0, "rate": None}, MOST),
        ({"n": 500, "knobs": {"live.front": "none", "engine.max_num_seqs": "64"}}, 128),
    ],
)
def test_a_pilot_has_the_runs_programs_up_to_a_bound(stage, config, asked, count):
    plan = pilot_plan(config(**asked))
    assert len(plan.programs.programs) == len(plan.times) == count
    assert set(plan.times) == {0.0}


def test_a_pilot_has_only_the_knobs_of_engine_and_machine(stage, config):
    own = {"engine.kv_blocks": "64", "live.front": "none"}
    theirs = {"scheduler.bounds": "3,9", "router.most_short": "2", "gate.limit": "3", "front.policy": "hash"}
    plan = pilot_plan(config(system="mlfq", knobs={**own, **theirs}))
    assert not set(theirs) & set(plan.config.knobs)
    assert plan.engine.kv_blocks == 64
    assert plan.spec.scheduler == "fcfs"


def test_a_pilot_that_fails_is_measured_once(stage, config, monkeypatch):
    measured = []

    def fails(*_):
        measured.append(1)
        raise InvalidRun("the client could not keep up")

    monkeypatch.setattr(pilots, "measure", fails)
    configs = [config(rate=None, seed=seed, system=s) for seed in (1, 2) for s in ("vllm-opt", "mlfq")]
    swept = sweep_live(configs, stage.said.append, pool=stage.pool)
    assert [outcome.message for outcome in swept.outcomes] == ["the client could not keep up"] * 4
    assert measured == [1]


def test_no_pilot_where_rate_and_step_times_are_known_without(stage, config, tmp_path):
    configs = [config(seed=seed, system=system) for seed in (1, 2) for system in ("vllm-opt", "mlfq")]
    swept = sweep_live(configs, stage.said.append, pool=stage.pool)
    assert swept.done == 4
    assert swept.pilots == [None] * 4
    assert not (tmp_path / "out" / "pilots").exists()
    swept = sweep_live([config(seed=3, system="mlfq")], stage.said.append, pool=stage.pool)
    assert swept.pilots[0] is not None

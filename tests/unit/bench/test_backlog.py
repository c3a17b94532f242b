"""Closed loops: places, and the barrier between waves of programs."""

import pytest

from bench.arriving import arriving
from bench.config import RunConfig
from bench.drivers.backlog import Backlog
from bench.drivers.virtual import drive
from bench.errors import UsageError
from bench.records import MemorySink
from systems.catalog import build_router, build_scheduler, build_table, load_system
from systems.engines.sim import SimEngine
from tests.latency_models import ConstantLatency
from vocabulary import EngineConfig
from workloads.base import ProgramSpec, Wave
from workloads.load import load


def specs(*waves, train=60.0, sync=10.0, lag=0):
    def made(i, number):
        wave = None if number is None else Wave(number, max(0, number - lag), train, sync)
        return ProgramSpec(i, "x", i, None, wave=wave)

    return [made(i, number) for i, number in enumerate(waves)]


def names(started):
    return [(time, spec.index) for time, spec in started]


def test_a_place_goes_to_the_next_at_once():
    made = specs(None, None, None)
    backlog = Backlog(made, 2)
    assert names(backlog.start(0.0)) == [(0.0, 0), (0.0, 1)]
    assert names(backlog.ended(made[1], 5.0)) == [(5.0, 2)]
    assert names(backlog.ended(made[0], 6.0)) == []


def test_a_wave_waits_for_the_last_straggler_then_for_training_and_sync():
    made = specs(0, 0, 0, 1, 1)
    backlog = Backlog(made, 2)
    assert names(backlog.start(0.0)) == [(0.0, 0), (0.0, 1)]
    assert names(backlog.ended(made[0], 10.0)) == [(10.0, 2)]
    assert names(backlog.ended(made[1], 20.0)) == []
    assert names(backlog.ended(made[2], 100.0)) == [(170.0, 3), (170.0, 4)]


def test_with_a_lag_training_is_beside_the_rollouts():
    made = specs(0, 1, 2, 3, lag=1)
    backlog = Backlog(made, 4)
    assert names(backlog.start(0.0)) == [(0.0, 0)]
    assert names(backlog.ended(made[0], 100.0)) == [(100.0, 1)], "it samples from version 0, too: no sync"
    assert names(backlog.ended(made[1], 110.0)) == [(170.0, 2)], "version 1 exists at 160"
    assert names(backlog.ended(made[2], 300.0)) == [(310.0, 3)], "version 2 has existed since 220"


def test_trainings_are_one_after_the_other():
    made = specs(0, 1, 2, 3, lag=2)
    backlog = Backlog(made, 1)
    backlog.start(0.0)
    assert [names(backlog.ended(spec, now)) for spec, now in zip(made, (10.0, 20.0, 30.0), strict=False)] == [
        [(10.0, 1)],
        [(20.0, 2)],
        [(80.0, 3)],
    ]


def test_rl_shares_a_task_in_a_group_and_nothing_between_versions():
    made = load("rl:grpo", n=9, seed=3, parameters={"group": "2", "prompts": "2"}).programs
    assert [spec.wave.number for spec in made] == [0, 0, 0, 0, 1, 1, 1, 1, 2]
    prompts = [spec.launch().send(None).prompt for spec in made]
    systems, tasks = [p[0] for p in prompts], [p[1] for p in prompts]
    assert len(set(systems[:4])) == len(set(systems[4:8])) == 1
    assert len({systems[0], systems[4], systems[8]}) == 3
    assert [tasks[i] == tasks[i + 1] for i in range(8)] == [True, False] * 4
    late = load("rl:grpo", n=9, seed=3, parameters={"group": "2", "prompts": "2", "lag": "1"}).programs
    assert [spec.wave.version for spec in late] == [0] * 8 + [1]
    assert late[0].launch().send(None).prompt[0] == late[4].launch().send(None).prompt[0]


def test_on_the_clock_a_batch_begins_when_all_before_it_are_over():
    made = load("rl:grpo", n=12, seed=3, parameters={"group": "2", "prompts": "2", "calls": "3"}).programs
    spec, sink = load_system("vllm-opt"), MemorySink()
    table = build_table(spec)
    engine = SimEngine(0, EngineConfig(kv_blocks=20_000), build_scheduler(spec, table), ConstantLatency(0.01))
    drive(
        made, times=None, concurrency=3, engines=[engine], router=build_router(spec), table=table, sink=sink
    )
    rows = sorted(sink.programs, key=lambda row: row.program)
    for batch in (1, 2):
        before, after = rows[4 * batch - 4 : 4 * batch], rows[4 * batch : 4 * batch + 4]
        opens = max(row.t_end for row in before) + 60.0 + 10.0
        assert sorted(row.t_arrive for row in after)[:3] == [opens] * 3
        assert sorted(row.t_arrive for row in after)[3] == min(row.t_end for row in after)
        first = [
            c for c in sink.calls if c.call.program in range(4 * batch, 4 * batch + 4) and not c.call.index
        ]
        assert min(c.cached_tokens for c in first) == 0, "the system prompt of old weights is of no use"


@pytest.mark.parametrize("many", [{"n": 4}, {"horizon": 30.0}])
def test_batches_do_not_arrive_at_a_rate(many):
    config = RunConfig(system="vllm-opt", workload="rl:grpo", rate=1.0, **many)
    with pytest.raises(UsageError, match=r"batches of rl:grpo .* give --concurrency N"):
        arriving(config, 131_072, "")

import pytest

from workloads.base import ProgramSpec
from workloads.dag import optimal_hits_across
from workloads.dryrun import dry_run
from workloads.script import CancelOp, SpawnOp
from workloads.session import Cancelled


def dag_of(start, key=1):
    return dry_run(ProgramSpec(0, "test", key, start))


async def fan(s):
    """A root call, two branches of 30 and 50 tokens (the first with a tool), a last call."""
    await s.call(new=100, output=20)

    async def branch(t, output, seconds):
        await t.tool("bash", seconds)
        await t.call(new=10, output=output)
        await t.tool("after", seconds)
        return output

    results = await s.join(branch(s.fork(), 30, 8.0), branch(s.fork(), 50, 0.5))
    assert results == [30, 50]
    await s.think(3.0)
    await s.call(new=5, output=7)


def test_structure_and_delays():
    dag = dag_of(fan)
    ids = [(c.thread, c.index) for c in dag.calls]
    assert ids == [("", 0), ("0", 0), ("1", 0), ("", 1)]
    assert [c.parents for c in dag.calls] == [(), (("", 0),), (("", 0),), (("0", 0), ("1", 0))]
    assert [c.delay_s for c in dag.calls] == [0.0, 8.0, 0.5, 11.0]
    assert dag.calls[3].tools == (("after", 8.0), ("think", 3.0))
    assert [c.prompt_tokens for c in dag.calls] == [100, 130, 130, 125]


def test_sums_and_paths():
    dag = dag_of(fan)
    assert (dag.total_output, dag.total_prompt, dag.longest, dag.threads) == (107, 485, 180, 3)
    assert dag.critical_path() == 20 + 50 + 7
    assert dag.critical_path_s(1.0) == 20 + max(16 + 30, 1 + 50) + 3 + 7
    assert dag.critical_path_s(0.0) == 19.0


def test_optimal_hits_by_hand():
    # Calls: 100; 100+20+10; the same 120 and another 10; 100+20+5.
    # 0; (120 - 1 computed) // 16 = 7 blocks; 120 // 16 = 7; again 7 of at most 124 // 16.
    assert dag_of(fan).optimal_hits() == 3 * 7 * 16


def test_optimal_hits_never_cover_a_whole_prompt():
    async def twice(s):
        await s.call(new=32, output=1)
        t = s.fork()
        t.edit(s.context[:1])
        await t.call(output=1)

    assert dag_of(twice).optimal_hits() == 16


def test_programs_share_only_what_is_declared():
    async def agent(s):
        s.add((99, 64))
        await s.call(new=40, output=3)

    dags = [dag_of(agent, key) for key in (1, 2, 3)]
    assert optimal_hits_across(dags) == [0, 64, 64]
    assert [dag.optimal_hits() for dag in dags] == [0, 0, 0]


def test_spawned_tasks_run_but_nobody_waits():
    async def child(t):
        await t.call(output=1000)

    async def agent(s):
        await s.call(new=10, output=5)
        task = await s.spawn(child(s.fork(detached=True)))
        assert not task.done
        await s.call(new=1, output=5)
        await s.call(new=1, output=5)
        assert task.done

    dag = dag_of(agent)
    assert dag.total_output == 1015
    assert dag.critical_path() == 15
    assert dag.calls[-1].parents == (("", 1),)


def test_cancel_stops_a_task_and_keeps_its_cleanup():
    seen = []

    async def child(t):
        try:
            for _ in range(10):
                await t.call(new=1, output=1)
        except Cancelled:
            seen.append("cancelled")
            await t.tool("cleanup", 1.0)

    async def agent(s):
        task = await s.spawn(child(s.fork(detached=True)))
        await s.call(new=10, output=5)
        await s.cancel(task)
        await s.call(new=10, output=5)

    dag = dag_of(agent)
    assert seen == ["cancelled"]
    spawn = next(op for op in dag.script.walk() if isinstance(op, SpawnOp))
    assert len(spawn.script.ops) == 1
    assert len(spawn.script.cleanup) == 1
    assert any(isinstance(op, CancelOp) for op in dag.script.walk())


def test_timeouts_never_fire_and_abandon_ends():
    async def slow(t):
        await t.tool("slow", 100.0)
        return 5

    async def agent(s):
        assert await s.timeout(1.0, slow(s)) == 5
        await s.call(new=1, output=1)
        await s.abandon()
        await s.call(new=1, output=1)

    dag = dag_of(agent)
    assert len(dag.calls) == 1
    assert dag.calls[0].delay_s == 100.0


def test_what_a_program_raises_is_passed_on():
    async def broken(s):
        await s.call(new=1, output=1)
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        dag_of(broken)

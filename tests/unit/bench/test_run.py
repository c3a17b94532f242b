import json
import os

import pytest

from bench.config import RunConfig
from bench.errors import InvalidRun, MissingError, RuleBroken, UsageError
from bench.eventlog import read_tables
from bench.files import locked
from bench.offline import offline
from bench.plan import Plan, guests, plan
from bench.run import execute, finished, run
from systems.catalog import load_system
from systems.schedulers.fcfs import Fcfs
from workloads.base import ProgramSpec
from workloads.dag import optimal_hits_across
from workloads.dryrun import dry_runs


def config(tmp_path, **kwargs):
    return RunConfig(
        **({"system": "atlas", "workload": "chatbot", "n": 12, "rate": 2.0, "out": tmp_path} | kwargs)
    )


def address(tmp_path, **kwargs):
    return plan(config(tmp_path, **kwargs)).cell


class Guest(Fcfs):
    """A policy from outside the project."""

    name = "guest"


async def broken(session):
    """A program with a bug."""
    await session.call(new=10, output=2)
    raise ValueError("a bug in the agent")


def test_the_address_is_all_that_decides_and_nothing_else(tmp_path):
    base = address(tmp_path)
    changes = [
        {"seed": 2}, {"n": 13}, {"rate": 3.0}, {"rate": None, "concurrency": 2}, {"system": "plas"},
        {"knobs": {"scheduler.beta": "3"}}, {"knobs": {"engine.kv_blocks": "9000"}}, {"gpu": "h100"},
        {"replicas": 2}, {"engine": "reference"}, {"router": "round-robin"},
        {"parameters": {"token_scale": ".5"}},
    ]  # fmt: skip
    others = [address(tmp_path, **change) for change in changes]
    assert len({base, *others}) == len(changes) + 1
    assert address(tmp_path / "elsewhere") == base
    assert address(tmp_path, knobs={"scheduler.beta": "8"}) == base
    assert address(tmp_path, workload="chatbot:paper") == base


def test_systems_share_their_programs(tmp_path):
    hashes = {plan(config(tmp_path, system=s)).program_hash for s in ("atlas", "vllm-opt", "srpt")}
    assert len(hashes) == 1


async def growing(session):
    """Four calls; the last two are longer than 1 000 tokens in every second program."""
    for _ in range(4):
        await session.call(new=200 + 100 * (session.program % 2), output=20)


def test_what_the_overflow_rule_did_is_part_of_the_programs(tmp_path):
    def made(rule, length):
        knobs = {"engine.max_model_len": str(length)}
        words = {"workload": "tests.unit.bench.test_run:growing", "on_overflow": rule, "n": 4}
        return plan(config(tmp_path, **words, knobs=knobs))

    cut = [made("truncate", length) for length in (1000, 700)]
    whole = [made("truncate", length) for length in (2000, 3000)]
    assert len({p.program_hash for p in (*cut, *whole)}) == 3
    assert [len(p.programs.programs) for p in cut] == [4, 4]
    assert whole[0].cell != whole[1].cell
    assert made("refuse", 2000).program_hash == made("truncate", 2000).program_hash


def test_a_short_kv_cache_is_named_where_it_is_the_reason(tmp_path):
    words = {"workload": "tests.unit.bench.test_run:growing", "n": 4}
    hint = r"1073 tokens is what fits the KV cache of 67 blocks"
    for rule, error in (("refuse", UsageError), ("skip", InvalidRun)):
        with pytest.raises(error, match=hint):
            plan(config(tmp_path, **words, on_overflow=rule, knobs={"engine.kv_blocks": "67"}))
    with pytest.raises(InvalidRun, match=r"no program is left.*is what fits"):
        plan(config(tmp_path, **words, on_overflow="skip", knobs={"engine.kv_blocks": "20"}))
    with pytest.raises(UsageError) as other:
        plan(config(tmp_path, workload="chatbot:1073", knobs={"engine.kv_blocks": "67"}))
    assert "KV cache" not in str(other.value)


def test_a_guest_policy_is_addressed_by_its_source(tmp_path):
    spec = load_system("tests.unit.bench.test_run:Guest")
    assert list(guests(spec)) == ["tests.unit.bench.test_run:Guest"]
    assert guests(load_system("atlas")) == {}
    result = run(config(tmp_path, system="tests.unit.bench.test_run:Guest"))
    assert result.summary["outcomes"] == {"finished": 12}


def test_finished_cells_are_skipped_and_replaced_by_force(tmp_path):
    first = run(config(tmp_path))
    assert not first.cached
    again = run(config(tmp_path))
    assert again.cached
    assert again.summary["result_hash"] == first.summary["result_hash"]
    (first.folder / "summary.json").unlink()
    (first.folder / "calls.parquet.part").write_text("left by a crash")
    rerun = run(config(tmp_path))
    assert not rerun.cached
    assert rerun.summary["result_hash"] == first.summary["result_hash"]
    assert not list(first.folder.glob("*.part"))
    assert not run(config(tmp_path), force=True).cached


def test_the_manifest_comes_first_and_holds_what_matters(tmp_path):
    result = run(config(tmp_path))
    made = json.loads((result.folder / "manifest.json").read_text())
    assert made["cell"] == result.folder.name
    assert made["workload"]["program_hash"] == plan(config(tmp_path)).program_hash
    assert dict(made["system"]["scheduler_knobs"])["beta"] == 8.0
    assert made["latency_table"]["provenance"]["package"]
    assert {"git", "versions", "hardware", "seeds", "command", "badge"} <= set(made)


TIGHT = {
    "n": 24, "rate": 50.0, "parameters": {"token_scale": "1/8"}, "knobs": {"engine.kv_blocks": "150"},
}  # fmt: skip


@pytest.mark.parametrize(
    "words", [TIGHT, {"n": 24, "parameters": {"token_scale": "1/4"}}, {"workload": "mcts", "n": 1}],
    ids=["tight", "loose", "mcts"],
)  # fmt: skip
def test_sim_and_reference_log_the_same(tmp_path, words):
    """The same hash, engine totals included; KV block-seconds, which are not in it, within 0.1 %."""
    results = [run(config(tmp_path, engine=e, **words)).summary for e in ("sim", "reference")]
    assert results[0]["result_hash"] == results[1]["result_hash"]
    assert (results[0]["metrics"]["preemptions.total"]["value"] > 0) == (words is TIGHT)
    (lazy,), (exact,) = (r["engines"] for r in results)
    assert lazy.pop("kv_block_seconds") == pytest.approx(exact.pop("kv_block_seconds"), rel=1e-3)
    assert lazy == exact


def test_srpt_is_told_the_remaining_work(tmp_path):
    assert run(config(tmp_path, system="srpt")).summary["outcomes"] == {"finished": 12}


def test_closed_loop_keeps_n_programs(tmp_path):
    result = run(config(tmp_path, rate=None, concurrency=3, n=30))
    programs = read_tables(result.folder).programs
    times = sorted(
        [(t, 1) for t in programs.t_arrive] + [(t, -1) for t in programs.t_end], key=lambda e: (e[0], e[1])
    )
    level = peak = 0
    for _, step in times:
        level += step
        peak = max(peak, level)
    assert peak == 3
    assert result.summary["trend"]["verdict"] == "closed loop"
    sides = {k: result.summary["metrics"][f"littles_law.{k}"]["value"] for k in ("programs", "product")}
    assert sides["programs"] == pytest.approx(3.0, rel=1e-9)
    assert sides["product"] == pytest.approx(3.0, rel=0.3)


def test_a_program_that_raises_is_an_invalid_run(tmp_path):
    with pytest.raises(InvalidRun, match="a bug in the agent"):
        run(config(tmp_path, workload="tests.unit.bench.test_run:broken"))


def test_a_second_writer_is_refused(tmp_path):
    made = plan(config(tmp_path))
    made.folder.mkdir(parents=True)
    with (
        locked(made.folder),
        pytest.raises(MissingError, match=rf"another bench run \(pid {os.getpid()}\) is writing this cell"),
    ):
        execute(made)


def test_an_old_format_is_not_read(tmp_path):
    result = run(config(tmp_path))
    path = result.folder / "summary.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"format": 0}))
    with pytest.raises(MissingError, match="format 0"):
        finished(result.folder)


def test_too_few_kv_blocks_are_refused_before_anything_is_written(tmp_path):
    with pytest.raises(UsageError, match="KV cache of 10 blocks"):
        run(config(tmp_path / "r", workload="mcts", knobs={"engine.kv_blocks": "10"}))
    assert not (tmp_path / "r").exists()


def test_progress_is_reported(tmp_path):
    seen = []
    run(config(tmp_path), progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (12, 12)


def test_offline_facts():
    async def chat(s):
        await s.call(new=40, output=8)
        await s.call(new=16, output=4)

    facts = offline([ProgramSpec(0, "chat", 1, chat), ProgramSpec(1, "chat", 2, chat)])
    assert facts == (4, 68, 0, 208, 24, 64, 2, True)
    assert facts.optimum == 64 / 208


def test_programs_whose_calls_depend_on_the_clock_are_known():
    async def call(s):
        await s.call(new=40, output=8)

    async def hasty(s):
        await s.timeout(5.0, call(s))

    async def fickle(s):
        await s.cancel(await s.spawn(call(s.fork(detached=True))))

    async def leaver(s):
        await s.abandon()

    async def nested(s):
        await s.join(hasty(s.fork()))

    fixed = {
        f.__name__: offline([ProgramSpec(0, "a", 1, f)]).fixed for f in (call, hasty, fickle, leaver, nested)
    }
    assert fixed == {"call": True, "hasty": False, "fickle": False, "leaver": False, "nested": False}


def test_a_lost_call_is_an_internal_error(tmp_path):
    made = plan(config(tmp_path))
    made.offline = made.offline._replace(calls=made.offline.calls + 1)
    with pytest.raises(RuleBroken, match="calls"):
        execute(made)
    assert not (made.folder / "summary.json").exists()


def test_the_best_hits_count_what_programs_share_and_keep_nothing_else():
    def agent(system):
        async def program(s):
            s.add((system, 100))
            await s.call(new=60, output=10)

        return program

    systems = [7, 8, 7, 9, 7, 8]
    specs = [ProgramSpec(i, "a", 50 + i, agent(system)) for i, system in enumerate(systems)]
    specs.append(ProgramSpec(6, "a", 99, agent(10)))
    assert offline(specs).hit_tokens == 3 * 96
    assert offline(specs).hit_tokens == sum(optimal_hits_across(dry_runs(specs)))


def test_a_plan_says_its_load(tmp_path):
    made = plan(config(tmp_path))
    assert isinstance(made, Plan)
    assert made.load == "12 programs, Poisson 2/s"
    assert "SIMULATED" in made.badge
    assert plan(config(tmp_path, rate=None, concurrency=2)).load == "12 programs, 2 at all times"


@pytest.mark.parametrize("name", ["summary.json", "manifest.json"])
@pytest.mark.parametrize("text", ["", '{"format": 1, "ce', "null", None])
def test_a_cell_that_cannot_be_read_is_run_again(tmp_path, name, text):
    first = run(config(tmp_path))
    (first.folder / name).unlink()
    if text is not None:
        (first.folder / name).write_text(text)
    with pytest.raises(MissingError, match=rf"{name}.*run it again"):
        finished(first.folder)
    again = run(config(tmp_path))
    assert not again.cached
    assert again.summary["result_hash"] == first.summary["result_hash"]
    assert finished(first.folder).cached

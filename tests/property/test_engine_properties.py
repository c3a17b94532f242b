"""What must hold whatever arrives: blocks, work, calls, and that the past does not know the future."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bench.drivers.virtual import drive
from bench.records import MemorySink
from systems.catalog import build_router, build_scheduler, build_table, load_system, scheduler_names
from systems.engines.sim import SimEngine
from systems.latency import load_table
from tests.live.seeded import scenario, scheduler, system
from tests.recount import recount
from tests.scenarios import Ask, Fork, Scenario, Script, play
from tests.strategies import LadderKnobs, ladder, ladders, scenarios
from vocabulary import EngineConfig
from workloads.dag import optimal_hits_across
from workloads.dryrun import dry_runs
from workloads.load import load

SLOW = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@SLOW
@given(scenarios(), ladders(), st.booleans())
def test_no_block_is_lost_or_shared_wrongly(case: Scenario, knobs: LadderKnobs, jumps: bool) -> None:
    case = replace(case, config=replace(case.config, record_steps=not jumps))
    engines: list[SimEngine] = []

    def make(*arguments: object) -> SimEngine:
        engines.append(SimEngine(*arguments))  # type: ignore[arg-type]
        return engines[-1]

    play(make, case, ladder(knobs), after=recount)
    for engine in engines:
        assert not engine.running
        assert engine.kv.free() == engine.kv.total


@SLOW
@given(scenarios(), ladders())
def test_work_is_conserved_and_no_call_is_lost(case: Scenario, knobs: LadderKnobs) -> None:
    case = replace(case, scripts=tuple(replace(script, leaves=None) for script in case.scripts))
    outcome = play(SimEngine, case, ladder(knobs))
    asked = [ask for script in case.scripts for ask in asks(script.chain)]
    assert len(outcome.finished) == len(asked)
    assert sum(row.output_tokens for row in outcome.finished) == sum(ask.output for ask in asked)
    for row in outcome.finished:
        parts = row.prefill_s + row.reprefill_s + row.decode_s + row.wait_s
        assert row.t_end - row.t_arrive == parts
        assert row.cached_tokens + row.prefill_tokens >= row.call.prompt_tokens or row.preemptions
        assert row.cached_tokens % 16 == 0
    computed = sum(stats["computed_prefill_tokens"] for stats in outcome.stats)
    assert computed == sum(row.prefill_tokens + row.reprefill_tokens for row in outcome.finished)
    decoded = sum(stats["decode_tokens"] for stats in outcome.stats)
    emitted_by_prefills = sum(ask.output for ask in asked) - decoded
    assert len(asked) <= emitted_by_prefills <= len(asked) + sum(s["preemptions"] for s in outcome.stats)


def asks(chain: tuple[Ask | Fork, ...]) -> list[Ask]:
    found = []
    for item in chain:
        if isinstance(item, Ask):
            found.append(item)
        else:
            found += [ask for branch in item.chains for ask in asks(branch)]
    return found


@pytest.mark.parametrize("name", [n for n in scheduler_names() if n != "srpt"])
@pytest.mark.parametrize("seed", range(6))
def test_an_unrevealed_future_changes_no_past_decision(name: str, seed: int) -> None:
    """Two futures of every program, equal until its last call: equal decisions until one is revealed."""
    one = scenario(seed)
    roomy = replace(one.config, max_model_len=100_000, kv_blocks=one.config.kv_blocks + 30)
    one = replace(one, config=roomy)
    two = replace(one, scripts=tuple(longer(script) for script in one.scripts))
    first, second = (
        play(SimEngine, case, scheduler(name, seed), rule=system(name, seed).rule) for case in (one, two)
    )
    revealed = min(
        row.t_end for row in first.finished if row.t_end != dict(ends(second)).get(identity(row), row.t_end)
    )
    before = [[d for d in outcome.decisions if d.time < revealed] for outcome in (first, second)]
    assert before[0] == before[1]
    assert before[0]


def identity(row: object) -> tuple[int, str, int]:
    call = row.call  # type: ignore[attr-defined]
    return call.program, call.thread, call.index


def ends(outcome: object) -> list[tuple[tuple[int, str, int], float]]:
    return [(identity(row), row.t_end) for row in outcome.finished]  # type: ignore[attr-defined]


def longer(script: Script) -> Script:
    """The same program, but its last call goes on for 100 tokens more, and another follows."""
    *head, last = script.chain
    if isinstance(last, Fork):
        return replace(script, chain=(*script.chain, Ask(5, 100)))
    return replace(script, chain=(*head, replace(last, output=last.output + 100), Ask(5, 100)))


def test_mcts_siblings_share_blocks_up_to_the_offline_optimum() -> None:
    """With KV to spare, the engine finds every block that an infinite cache would."""
    programs = load("mcts", n=6, seed=3, rate=0.05).programs
    spec = load_system("atlas")
    table, sink = build_table(spec), MemorySink()
    engine = SimEngine(
        0, EngineConfig(kv_blocks=60_000), build_scheduler(spec, table), load_table("llama-3.1-8b", "a100")
    )
    times = [20.0 * i for i in range(len(programs))]
    drive(programs, times=times, engines=[engine], router=build_router(spec), table=table, sink=sink)
    hit, best = engine.stats()["hit_tokens"], sum(optimal_hits_across(dry_runs(programs)))
    assert 0.995 * best <= hit <= best
    assert hit > 0.9 * sum(row.call.prompt_tokens for row in sink.calls)
    in_use = [row for row in sink.calls if row.cached_tokens >= row.call.prompt_tokens - 32]
    assert len(in_use) > 0.5 * len(sink.calls)


def test_siblings_in_one_step_use_the_same_blocks() -> None:
    """Five calls of one prompt of 1 600 tokens: 100 blocks once, not five times, while they run."""
    fork = Fork(tuple((Ask(1, 200),) for _ in range(5)))
    case = Scenario((Script((Ask(1600, 1), fork)),), EngineConfig(kv_blocks=400, max_num_seqs=8))
    used: list[int] = []
    outcome = play(
        SimEngine, case, ladder(LadderKnobs()), after=lambda e: used.append(e.view().kv_used), stride="single"
    )
    assert max(used) < 101 + 5 * 14
    siblings = [row for row in outcome.finished if row.call.thread]
    assert [row.cached_tokens for row in siblings] == [1600] * 5

"""Where one scheduler must become another, seen in whole schedules (papers: Autellix, Algorithm 1)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from systems.catalog import build_scheduler, load_system
from systems.engines.reference import ReferenceEngine
from systems.engines.sim import SimEngine
from tests.live.seeded import scenario
from tests.scenarios import Ask, EngineMaker, Fork, Outcome, Scenario, Script, play
from vocabulary import INF, EngineConfig

ENGINES = pytest.mark.parametrize("engine", [ReferenceEngine, SimEngine], ids=["reference", "sim"])
FIRST_NEVER_ENDS = {"bounds": (INF,), "quanta": (INF, INF)}


def run(engine: EngineMaker, case: Scenario, name: str, **knobs: object) -> Outcome:
    named = {f"scheduler.{knob}": value for knob, value in knobs.items()}
    spec = load_system("vllm-opt", scheduler=name, knobs=named)
    return play(engine, case, lambda table: build_scheduler(spec, table), rule=spec.rule)


def served(outcome: Outcome) -> list[list[tuple[float, tuple[tuple[int, int], ...]]]]:
    """Who got how many tokens in which step."""
    return [[(step.start, step.batch) for step in steps] for steps in outcome.steps]


@ENGINES
@pytest.mark.parametrize("name", ["plas", "atlas", "mlfq"])
@pytest.mark.parametrize(
    "knobs",
    [{"beta": 0.0}, {"bounds": (), "quanta": (INF,)}, FIRST_NEVER_ENDS],
    ids=["beta 0", "K 1", "first queue never ends"],
)
def test_limits_are_fcfs(engine: EngineMaker, name: str, knobs: dict[str, object]) -> None:
    for seed in (1, 5, 9):
        case = scenario(seed)
        case = replace(case, config=replace(case.config, record_steps=True))
        fcfs = run(engine, case, "fcfs")
        assert served(run(engine, case, name, **knobs)) == served(fcfs)
        assert served(run(engine, case, name, **KNOBS)) != served(fcfs), "the case tells nothing"


def test_an_infinite_first_bound_alone_does_not_make_mlfq_fcfs() -> None:
    """Its calls leave the first queue by quantum, not by the program's service."""
    case = busy(4)
    fcfs = served(run(SimEngine, case, "fcfs"))
    knobs = {"bounds": (INF,), "quanta": (3.0, INF), "beta": INF}
    assert served(run(SimEngine, case, "mlfq", **knobs)) != fcfs
    assert served(run(SimEngine, case, "plas", bounds=(INF,), beta=INF)) == fcfs


def busy(programs: int, *, fork: bool = False) -> Scenario:
    """More programs than places; with ``fork``, the first half runs two threads at a time."""
    chain = (Ask(20, 6), Ask(5, 9), Ask(5, 4))
    two = (Ask(20, 6), Fork(((Ask(5, 9),), (Ask(6, 8),))), Ask(5, 4))
    scripts = tuple(
        Script(two if fork and i < programs // 2 else chain, arrival=float(i)) for i in range(programs)
    )
    return Scenario(scripts, EngineConfig(kv_blocks=60, max_num_seqs=2, record_steps=True))


KNOBS = {"bounds": (4.0, 12.0, 22.0), "beta": INF}


@ENGINES
def test_sequential_programs_do_not_tell_atlas_from_plas(engine: EngineMaker) -> None:
    assert run(engine, busy(8), "atlas", **KNOBS).same(run(engine, busy(8), "plas", **KNOBS))


@ENGINES
def test_a_two_way_fork_does(engine: EngineMaker) -> None:
    """PLAS adds up both threads, ATLAS takes the longer one: the join comes back in a better queue."""
    case = busy(8, fork=True)
    atlas, plas = run(engine, case, "atlas", **KNOBS), run(engine, case, "plas", **KNOBS)
    assert served(atlas) != served(plas)

    def level_of_the_join(outcome: Outcome) -> int:
        return next(r.level for r in outcome.finished if (r.call.program, r.call.index) == (0, 2))

    assert level_of_the_join(atlas) < level_of_the_join(plas)


@ENGINES
def test_the_batch_stops_at_the_first_call_that_does_not_fit(engine: EngineMaker) -> None:
    """The small call behind the large one would fit, and waits all the same; the running one goes on."""
    scripts = Script((Ask(64, 20),)), Script((Ask(100, 2),), 1.0), Script((Ask(4, 2),), 2.0)
    config = EngineConfig(kv_blocks=9, max_num_seqs=4, record_steps=True)
    outcome = run(engine, Scenario(scripts, config), "fcfs")
    first, large, small = (next(r for r in outcome.finished if r.call.program == i) for i in range(3))
    assert large.t_first_sched == first.t_end
    assert small.t_first_sched >= large.t_first_sched
    assert first.t_end == 20.0

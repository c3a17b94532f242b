"""Every retention policy decides the same on both engines of ours, and what it keeps is found again.

Agents with tools of three families on two engines with room for about half of what they leave.
"""

import random
from dataclasses import fields

import pytest

from bench.drivers.virtual import drive
from bench.records import MemorySink
from systems.catalog import build_retention, build_router, build_scheduler, build_table, load_system
from systems.catalog import retention_names as names
from systems.engines.reference import ReferenceEngine
from systems.engines.sim import SimEngine
from tests.latency_models import LinearLatency
from vocabulary import EngineConfig, Finished
from workloads.base import ProgramSpec
from workloads.keys import mix

CASES = [(name, {}) for name in names()]
CASES += [
    ("survival", {"firm": False}),
    ("pin", {"firm": False}),
    ("infercept", {"firm": True}),
    ("survival", {"by": "oracle"}),
    ("infercept", {"estimate": "mean"}),
]
IDS = [" ".join([name, *map(str, knobs.values())]) for name, knobs in CASES]
ROWS = [field.name for field in fields(Finished) if field.name != "call"]
TOOLS = {
    "bash": lambda rng: rng.lognormvariate(-1.0, 1.5),
    "search": lambda rng: rng.uniform(0.9, 1.1),
    "build": lambda rng: rng.expovariate(0.3),
}


def agent(seed):
    """Ten calls, each 40 to 120 tokens longer than the last, with a tool or a person between them."""

    async def start(s):
        rng = random.Random(f"retention {seed}")
        for _ in range(10):
            await s.call(new=rng.randrange(30, 100), output=rng.randrange(10, 20))
            if rng.random() < 0.1:
                await s.think(rng.uniform(1.0, 4.0))
            else:
                tool = rng.choice(sorted(TOOLS))
                await s.tool(tool, min(30.0, TOOLS[tool](rng)))

    return start


def run(case, engine, kv_blocks=220):
    """Rows of the calls, decisions about KV, and the counts of what was kept."""
    name, knobs = case
    knobs = {"least": 5, **knobs} if name == "survival" else knobs
    named = {f"retention.{knob}": value for knob, value in knobs.items()}
    spec = load_system("vllm-opt", retention=name, router="session-pinned", knobs=named)
    retention, table, log = build_retention(spec), build_table(spec), MemorySink()
    config = EngineConfig(kv_blocks=kv_blocks, max_num_seqs=8, max_model_len=1600, retains=True)
    engines = [engine(i, config, build_scheduler(spec, table), LinearLatency()) for i in range(2)]
    specs = [ProgramSpec(i, "test", mix(11, i), agent(i)) for i in range(24)]
    end = drive(specs, times=None, concurrency=16, engines=engines, router=build_router(spec), table=table,
                sink=log, retention=retention)  # fmt: skip
    rows = [(row.call.seq, row.call.kept, *(getattr(row, field) for field in ROWS)) for row in log.calls]
    kept = [repr(row) for row in log.decided if row.rule.startswith("keep:")]
    return rows, kept, end.said


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_both_engines_keep_and_give_up_the_same(case):
    assert run(case, SimEngine) == run(case, ReferenceEngine)


def hits(case, **more):
    return sum(row[2 + ROWS.index("cached_tokens")] for row in run(case, SimEngine, **more)[0])


def test_what_is_kept_is_found_again():
    """Room for all: every policy finds the same. Room for half: who knows more finds more."""
    roomy = {name: hits((name, {}), kv_blocks=4000) for name in ("lru", "pin", "survival")}
    assert len(set(roomy.values())) == 1
    tight = {by: hits(("survival", {"by": by})) for by in ("tool", "oracle")}
    assert hits(("lru", {})) < tight["tool"] < tight["oracle"] < roomy["lru"]


def test_everybody_is_served_whatever_is_kept():
    for case in CASES:
        rows, kept, said = run(case, SimEngine)
        assert len(rows) == 240
        assert not any(row[2 + ROWS.index("aborted")] for row in rows)
        counts = said["kept"]
        assert counts["pinned"] >= counts["expired"] + counts["given_up"] + counts["hits"]
        assert bool(kept) == (case[0] not in ("lru", "pin"))

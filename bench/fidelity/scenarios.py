"""Seeded scenarios for comparing schedules: six families, each named for what it must make an engine do.

Programs are the workloads' own (sessions that call, fork, join, wait and leave). Half of the seeds have
vLLM's default limits (256 calls, 2 048 tokens a step), the others limits so small that steps are full.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random

from bench.offline import offline
from systems.latency import latency_for
from systems.latency.scaled import ServedModel
from vocabulary import BLOCK, EngineConfig, Segment, blocks_for
from workloads.base import ProgramSpec
from workloads.keys import key_of
from workloads.session import Program, Session, TimedOut

MODEL, GPU = "llama-3.1-8b", "a100"


@dataclass(frozen=True)
class Scenario:
    """Programs, when they arrive (seconds), and the engine they meet. ``large``: vLLM's default limits."""

    family: str
    seed: int
    large: bool
    programs: Sequence[ProgramSpec]
    times: Sequence[float]
    config: EngineConfig
    latency: ServedModel


@dataclass(frozen=True)
class Size:
    """Bounds of what a call adds to its prompt and of its reply (tokens), the longest pause between calls
    (seconds), and the texts that programs may begin with."""

    new: tuple[int, int]
    output: tuple[int, int]
    pause: float = 0.0
    texts: Sequence[Segment] = ()

    def asks(self, rng: Random) -> tuple[int, int]:
        """(tokens added, tokens replied); whole blocks, and one more or less, are frequent."""
        new = rng.randint(*self.new)
        if rng.random() < 0.3:
            new = max(1, new // BLOCK * BLOCK + rng.choice([-1, 0, 1]))
        return new, rng.choice([1, rng.randint(*self.output), rng.randint(*self.output)])

    def begins(self, session: Session, rng: Random) -> None:
        """A shared system prompt, if there are some."""
        if self.texts:
            session.add(rng.choice(self.texts))


# Programs


async def _once(size: Size, s: Session) -> None:
    new, output = size.asks(Random(s.key))
    await s.call(new=new, output=output)


async def _chat(size: Size, s: Session, turns: tuple[int, int] = (2, 5)) -> None:
    """Append-only turns, with a pause before most of them."""
    rng = Random(s.key)
    size.begins(s, rng)
    for _ in range(rng.randint(*turns)):
        new, output = size.asks(rng)
        await s.call(new=new, output=output)
        await s.think(rng.choice([0.0, rng.random() * size.pause]))


async def _search(size: Size, s: Session) -> None:
    """Two rounds of siblings from one context, some of them with siblings of their own (as in MCTS)."""
    rng = Random(s.key)
    size.begins(s, rng)
    for _ in range(2):
        new, output = size.asks(rng)
        await s.call(new=new, output=output)
        same = rng.random() < 0.4
        await s.join(*(_branch(size, s.fork(), same) for _ in range(rng.randint(2, 4))))


async def _crowd(size: Size, s: Session) -> None:
    """Every third program forks, the others talk."""
    await (_search if s.program % 3 == 0 else _chat)(size, s)


async def _branch(size: Size, s: Session, same: bool, depth: int = 1) -> None:
    """``same``: exactly the siblings' prompt, another reply."""
    rng = Random(s.key)
    new, output = size.asks(rng)
    await s.call(new=0 if same else new, output=output)
    if depth and rng.random() < 0.5:
        await s.join(*(_branch(size, s.fork(), False, depth - 1) for _ in range(2)))


async def _impatient(size: Size, s: Session) -> None:
    """A timeout, a race of siblings that is cut off, or a client that leaves in the middle of two calls."""
    rng = Random(s.key)
    size.begins(s, rng)
    after = rng.uniform(0.05, 0.6)
    kind = s.program % 4
    if kind == 0:
        try:
            await s.timeout(after, _chat(size, s.fork()))
        except TimedOut:
            await _once(size, s)
        return
    tasks = [await s.spawn(_chat(size, s.fork(detached=True))) for _ in range(2 if kind < 3 else 1)]
    await s.think(after)
    if kind == 1:
        for task in tasks:
            await s.cancel(task)
        await _once(size, s)
    elif kind == 2:
        await s.abandon()


# Families


@dataclass(frozen=True)
class Family:
    """``programs`` and ``size`` for small and large limits; ``kv``: usable KV over what the longest call
    needs (both limits), None for all of the card's; ``within``: seconds in which the programs arrive."""

    name: str
    about: str
    start: Callable[[Size, Session], Program]
    programs: tuple[int, int]
    sizes: tuple[Size, Size]
    kv: tuple[tuple[float, ...], tuple[float, ...]] | None
    within: tuple[float, float] = (2.0, 1.0)
    budgets: tuple[int, ...] = (64, 128, 512)
    seqs: tuple[int, ...] = (2, 3, 4, 8)


FAMILIES = (
    Family("plain", "one-shot calls, roomy KV", _once, (16, 100),
           (Size((1, 400), (2, 60)), Size((1, 900), (2, 90))), None, seqs=(4, 6, 8)),
    Family("reuse", "append-only turns behind shared system prompts", _chat, (6, 14),
           (Size((1, 120), (2, 30), 0.4), Size((1, 300), (2, 40), 0.3)), ((3.0, 6.0), (3.0, 6.0))),
    Family("forks", "siblings from one context, nested, joined", _search, (5, 9),
           (Size((1, 100), (2, 25)), Size((1, 300), (2, 40))), ((3.0, 5.0), (2.5, 4.0)), (0.3, 0.3),
           seqs=(2, 3, 4)),
    Family("starved", "less KV than the calls of a step want", _crowd, (7, 12),
           (Size((1, 40), (15, 45), 0.1), Size((1, 60), (25, 70), 0.1)),
           ((1.0, 1.2), (1.5, 2.0, 2.5)), (0.2, 0.2), seqs=(6, 8, 12)),
    Family("chunked", "prompts longer than a step's token budget", _chat, (6, 10),
           (Size((60, 300), (2, 30), 0.1), Size((900, 4200), (2, 30), 0.3)), ((2.0, 4.0), (3.0, 5.0)),
           budgets=(8, 16, 32, 48)),
    Family("aborts", "timeouts, races that are cut off, clients that leave", _impatient, (8, 16),
           (Size((1, 150), (2, 50), 0.1), Size((1, 500), (5, 70), 0.1)), ((1.2, 2.0, 3.0), (2.0, 3.0)),
           (1.0, 0.5)),
)  # fmt: skip
"""In the page's order."""
CROWDED = Family("crowded", "short programs that wait for few places on two engines", _crowd, (8, 8),
                 (Size((1, 60), (5, 40), 0.05),) * 2, ((2.0, 3.0), (2.0, 3.0)), (0.2, 0.2),
                 seqs=(2, 3, 4))  # fmt: skip
"""For what several engines make of a policy: calls wait, and are promoted."""


def scenario(family: Family, seed: int, large: bool) -> Scenario:
    """A pure function of its arguments."""
    rng = Random(f"{family.name} {seed} {large}")
    size, count = family.sizes[large], family.programs[large]
    texts = [(key_of("text", family.name, i), rng.randint(60, 400 if large else 120)) for i in range(2)]
    size = Size(size.new, size.output, size.pause, [] if family.name == "plain" else texts)
    keys = [key_of("fidelity", family.name, seed, int(large), i) for i in range(count)]
    start = partial(family.start, size)
    programs = [ProgramSpec(i, family.name, key, start) for i, key in enumerate(keys)]
    within = family.within[large]
    times = sorted(rng.choice([0.0, rng.random() * within, rng.random() * within]) for _ in programs)
    latency = latency_for(MODEL, GPU)
    return Scenario(family.name, seed, large, programs, times, _config(family, rng, programs, large), latency)


def _config(family: Family, rng: Random, programs: Sequence[ProgramSpec], large: bool) -> EngineConfig:
    table = latency_for(MODEL, GPU)
    longest = offline(programs).longest
    blocks = table.kv_blocks
    if family.kv is not None:
        blocks = int(blocks_for(longest) * rng.choice(family.kv[large]))
    if large:
        return EngineConfig(blocks, max_model_len=table.max_model_len, record_steps=True)
    seqs = rng.choice(family.seqs)
    budget = max(seqs, rng.choice(family.budgets))
    return EngineConfig(blocks, seqs, budget, longest + rng.choice([0, 1, 1000]), record_steps=True)

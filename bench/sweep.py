"""Many cells on all cores: each as ``bench run`` would do it, in whatever order suits, with the same result.

Cells that share their programs (same workload, seed, rate, ...) form a group and go to
one worker, one after the other, so that what the programs are without a clock is found
once. Groups are done seed by seed, so systems are interleaved within each seed, and the
longest first. Where workers would idle, a group is shared.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

from bench.cells import Answer, Cells, Fact, Failure, Look, Task
from bench.code import code_digest
from bench.config import RunConfig
from bench.errors import Exit
from bench.run import Interrupted, RunResult, engine_class, pooled
from bench.workers import Died, Done, Pool, Said

SERVES = {"system", "scheduler", "router", "knobs", "model", "gpu", "replicas", "engine", "out"}
"""What in a configuration decides who serves; the rest decides what arrives."""
TICK = 0.5
"""Seconds between two looks at the clock."""
AGAIN = 1.0
"""Seconds until a cell that another bench is writing is tried again."""


class Standing(NamedTuple):
    """How far a sweep is. ``cells`` in all; ``done`` have a result, ``there`` of them from before.

    ``calls``: simulated so far; ``calls_left``: estimate; ``elsewhere``: cells another bench is writing.
    """

    cells: int
    done: int = 0
    there: int = 0
    failed: int = 0
    calls: float = 0.0
    calls_left: float = 0.0
    seconds: float = 0.0
    elsewhere: int = 0


SweepProgress = Callable[[Standing], None]


def run_cells(
    configs: Sequence[RunConfig],
    *,
    workers: int | None = None,
    force: bool = False,
    progress: SweepProgress | None = None,
    calls: Sequence[int] | None = None,
) -> list[RunResult | Failure]:
    """Run every cell, or find it; results in the order of ``configs``.

    ``workers``: processes, one for each core if None. ``calls``: estimated calls of each
    cell (for the order and the progress), found by a look at each workload if None.
    A cell that cannot be run, or whose process dies, is a Failure; the others go on,
    except on a full disk. Raises Interrupted on Ctrl-C: what is finished stays.
    """
    if not configs:
        return []
    sweep: _Sweep | None = None
    try:
        with _pool(configs, workers) as pool:
            sweep = _Sweep(configs, force, calls or _estimates(configs, pool))
            return sweep.go(pool, progress)
    except KeyboardInterrupt:
        done = sum(isinstance(o, RunResult) for o in sweep.outcomes.values()) if sweep else 0
        raise Interrupted(
            f"interrupted: {done} of {len(configs)} cells are finished and kept; "
            "the same command goes on from here"
        ) from None


def survey(configs: Sequence[RunConfig], *, workers: int | None = None) -> list[Look | Failure]:
    """What is known of each cell without running it, in the order of ``configs``."""
    if not configs:
        return []
    with _pool(configs, workers) as pool:
        return _looks(configs, pool)


def points(
    configs: Sequence[RunConfig], outcomes: Sequence[RunResult | Failure]
) -> list[tuple[RunConfig, dict[str, Any]]]:
    """The cells that differ in nothing but the seed, pooled: (first configuration, summary over seeds)."""
    found: dict[tuple[str, ...], list[tuple[RunConfig, RunResult]]] = {}
    for config, outcome in zip(configs, outcomes, strict=True):
        if isinstance(outcome, RunResult):
            found.setdefault(tuple(config.with_seed(0).words()), []).append((config, outcome))
    return [(cells[0][0], pooled([result for _, result in cells])) for cells in found.values()]


def exit_code(outcomes: Sequence[object]) -> Exit:
    """Of a whole sweep: the most serious of its failures, our own fault first."""
    codes = {o.exit_code for o in outcomes if isinstance(o, Failure)}
    order = (Exit.INTERNAL, Exit.MISSING, Exit.USAGE, Exit.INVALID_RUN)
    return next((code for code in order if code in codes), max(codes, default=Exit.OK))


def _pool(configs: Sequence[RunConfig], workers: int | None) -> Pool:
    """Workers that have loaded, by being forked, what a run needs: all run the code there is now."""
    import bench.drivers.virtual  # noqa: F401

    for engine in {config.engine for config in configs}:
        engine_class(engine)
    code_digest()
    return Pool(max(1, min(workers or os.cpu_count() or 1, len(configs))), Cells())


def _key(config: RunConfig, seed: bool = True) -> str:
    """Equal for configurations with the same programs and arrivals."""
    named = [f.name for f in fields(config) if f.name not in SERVES and (seed or f.name != "seed")]
    values = ((name, getattr(config, name)) for name in named)
    return repr([(k, sorted(v.items()) if isinstance(v, Mapping) else v) for k, v in values])


def _looks(configs: Sequence[RunConfig], pool: Pool) -> list[Look | Failure]:
    found: dict[int, Look | Failure] = {}
    waiting, at = deque(range(len(configs))), dict[int, int]()
    while len(found) < len(configs):
        for place, worker in enumerate(pool.workers):
            if not worker.busy and waiting:
                at[place] = waiting.popleft()
                worker.give(Task(configs[at[place]], run=False))
        for place, event in pool.events(TICK):
            cell = at[place]
            if isinstance(event, Done):
                found[cell] = event.value.outcome
            elif isinstance(event, Died):
                found[cell] = _dead(configs[cell], event)
    return [found[i] for i in range(len(configs))]


def _estimates(configs: Sequence[RunConfig], pool: Pool) -> list[int]:
    """About how many calls each cell makes: those of its workload's first seed."""
    first: dict[str, int] = {}
    keys = [_key(config, seed=False) for config in configs]
    for cell, key in enumerate(keys):
        first.setdefault(key, cell)
    looks = _looks([configs[cell] for cell in first.values()], pool)
    calls = {key: look.calls if isinstance(look, Look) else 0 for key, look in zip(first, looks, strict=True)}
    return [calls[key] for key in keys]


def _dead(config: RunConfig, event: Died) -> Failure:
    by_signal = event.code < 0
    what = f"{config.system} on {config.workload}, seed {config.seed}: {event.why}"
    advice = "; fewer --workers or a lower --n need less memory" if by_signal else ""
    return Failure(config, Exit.MISSING if by_signal else Exit.INTERNAL, what + advice)


@dataclass
class _Group:
    """Cells with the same programs that are still to do. ``fact``: once one of them was run."""

    seed: int
    calls: int
    cells: deque[int] = field(default_factory=deque)
    fact: Fact | None = None


class _Order:
    """Which cell is next."""

    def __init__(self, configs: Sequence[RunConfig], calls: Sequence[int]) -> None:
        groups: dict[str, _Group] = {}
        self.group_of: list[_Group] = []
        for cell, config in enumerate(configs):
            group = groups.setdefault(_key(config), _Group(config.seed, calls[cell]))
            group.cells.append(cell)
            self.group_of.append(group)
        self._new = deque(sorted(groups.values(), key=lambda g: (g.seed, -g.calls * len(g.cells))))
        self._started: list[_Group] = []
        self.later: deque[tuple[float, int]] = deque()

    def take(self, last: int | None, now: float) -> int | None:
        """The next cell for a worker whose last one was ``last``; None if there is none now."""
        if last is not None and (group := self.group_of[last]).cells:
            return group.cells.popleft()
        if self._new:
            self._started.append(self._new.popleft())
            return self._started[-1].cells.popleft()
        if open_ := [group for group in self._started if group.cells]:
            return max(open_, key=lambda g: g.calls * len(g.cells)).cells.popleft()
        return self.later.popleft()[1] if self.later and self.later[0][0] <= now else None


class _Sweep:
    """A sweep under way. ``outcomes``: by the cell's place in the configurations."""

    def __init__(self, configs: Sequence[RunConfig], force: bool, calls: Sequence[int]) -> None:
        self.configs, self.force, self.calls = configs, force, calls
        self.outcomes: dict[int, RunResult | Failure] = {}
        self._order = _Order(configs, calls)
        self._at: dict[int, int] = {}
        """Cell that a worker does or did last."""
        self._share: dict[int, float] = {}
        """How much of a running cell is done."""
        self._full: Failure | None = None
        self._began = time.monotonic()

    def go(self, pool: Pool, progress: SweepProgress | None) -> list[RunResult | Failure]:
        """Until every cell has an outcome."""
        told = 0.0
        while len(self.outcomes) < len(self.configs):
            self._assign(pool)
            for place, event in pool.events(TICK):
                self._hear(self._at[place], event)
            if progress is not None and time.monotonic() - told >= TICK / 2:
                progress(self.standing())
                told = time.monotonic()
        if progress is not None:
            progress(self.standing())
        return [self.outcomes[cell] for cell in range(len(self.configs))]

    def _assign(self, pool: Pool) -> None:
        idle = [place for place, worker in enumerate(pool.workers) if not worker.busy]
        for place in idle:
            cell = self._order.take(self._at.get(place), time.monotonic())
            while cell is not None and self._full is not None:
                message = "not run: there is no space left for results"
                self.outcomes[cell] = Failure(self.configs[cell], Exit.MISSING, message, disk_full=True)
                cell = self._order.take(None, float("inf"))
            if cell is None:
                continue
            self._at[place] = cell
            self._share[cell] = 0.0
            fact = self._order.group_of[cell].fact
            pool.workers[place].give(Task(self.configs[cell], force=self.force, fact=fact))

    def _hear(self, cell: int, event: Said | Done | Died) -> None:
        if isinstance(event, Said):
            self._share[cell] = event.value
            return
        self._share.pop(cell, None)
        if isinstance(event, Died):
            self.outcomes[cell] = _dead(self.configs[cell], event)
            return
        answer: Answer = event.value
        if answer.fact is not None:
            self._order.group_of[cell].fact = answer.fact
        if answer.outcome is None:
            self._order.later.append((time.monotonic() + AGAIN, cell))
        elif not isinstance(answer.outcome, Look):
            self.outcomes[cell] = answer.outcome
            if isinstance(answer.outcome, Failure) and answer.outcome.disk_full:
                self._full = answer.outcome

    def standing(self) -> Standing:
        """How far it is now."""
        results = [o for o in self.outcomes.values() if isinstance(o, RunResult)]
        there = sum(r.cached for r in results)
        made = sum(r.summary["calls"] for r in results if not r.cached)
        running = sum(share * self.calls[cell] for cell, share in self._share.items())
        left = sum(n for cell, n in enumerate(self.calls) if cell not in self.outcomes) - running
        return Standing(
            len(self.configs),
            len(results),
            there,
            len(self.outcomes) - len(results),
            made + running,
            left,
            time.monotonic() - self._began,
            len(self._order.later),
        )

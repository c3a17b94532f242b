"""What a sweep is asked to be: systems, workloads, rates, seeds and settings, and the cells that makes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from itertools import product
from typing import Any

from bench.config import LIVE_ENGINE, MOST_SEEDS, RunConfig
from bench.errors import UsageError

MOST_CELLS = 100_000
"""More than this is refused: a slip of the hand."""
MOST_STEPS = 1_000
WHOLE = ("replicas", "concurrency")
NAMES = ("scheduler", "router")
"""Fields of a run that ``--vary`` may set, beside knobs (NAME with a dot) and workload parameters."""


@dataclass(frozen=True)
class Grid:
    """All combinations are run. ``rates`` in programs per second; none: the workload's own.

    ``workloads`` are (format or None, name); ``vary`` names (knob, field or parameter) with their
    values; ``base`` has everything that all cells have in common. ``counts``: programs of single workloads,
    by name without preset. A parameter WORKLOAD.NAME of ``base`` is that workload's alone.
    """

    base: RunConfig
    systems: Sequence[str]
    workloads: Sequence[tuple[str | None, str]]
    rates: Sequence[float | None] = (None,)
    models: Sequence[str] = ("llama-3.1-8b",)
    gpus: Sequence[str] = ("a100",)
    vary: Mapping[str, Sequence[str]] = field(default_factory=dict)
    seeds: int = 1
    counts: Mapping[str, int] = field(default_factory=dict)

    def cells(self) -> list[RunConfig]:
        """Seed by seed, systems innermost. Raises UsageError."""
        if not 1 <= self.seeds <= MOST_SEEDS:
            raise UsageError(f"--seeds must be at least 1 and at most {MOST_SEEDS:,}, got {self.seeds:,}")
        if (count := self.points() * self.seeds) > MOST_CELLS:
            raise UsageError(f"that makes {count:,} cells; {MOST_CELLS:,} is the most one sweep may have")
        settings = [dict(zip(self.vary, values, strict=True)) for values in product(*self.vary.values())]
        first = [
            varied(self._with(workload, rate, model, gpu, system), setting)
            for workload, model, gpu, rate, setting, system in product(
                self.workloads, self.models, self.gpus, self.rates, settings, self.systems
            )
        ]
        return [config.with_seed(self.base.seed + i) for i in range(self.seeds) for config in first]

    def points(self) -> int:
        """Cells of one seed."""
        axes = (self.systems, self.workloads, self.rates, self.models, self.gpus, *self.vary.values())
        return math.prod(len(axis) for axis in axes)

    def _with(
        self, workload: tuple[str | None, str], rate: float | None, model: str, gpu: str, system: str
    ) -> RunConfig:
        form, name = workload
        return replace(
            self.base, system=system, workload=name, format=form, rate=rate, model=model, gpu=gpu,
            parameters=self._parameters(plain(name)), n=self.counts.get(plain(name), self.base.n),
            horizon=None if plain(name) in self.counts else self.base.horizon,
        )  # fmt: skip

    def _parameters(self, workload: str) -> dict[str, str]:
        """The base's, and those of this workload alone, which win."""
        names = {plain(name) for _, name in self.workloads}
        common, own = {}, {}
        for key, value in self.base.parameters.items():
            of, dot, name = key.partition(".")
            if not dot or of not in names:
                common[key] = value
            elif of == workload:
                own[name] = value
        return common | own


def plain(workload: str) -> str:
    """A workload's name without its preset."""
    return workload.partition(":")[0]


def rates(words: Sequence[str]) -> list[float]:
    """``0.5`` or ``LOW:HIGH:COUNT`` (both ends included, equal steps), in programs/s; each value once.

    A step is computed exactly and rounded once, to the nearest float: steps never run together.
    Raises UsageError.
    """
    return list(dict.fromkeys(float(rate) for word in words for rate in _steps(word)))


def _steps(word: str) -> list[Fraction]:
    low, *rest = word.split(":")
    if not rest:
        return [_rate(low, word)]
    if len(rest) != 2:
        raise UsageError(f"--rate {word!r}: give a rate, or LOW:HIGH:COUNT such as 0.2:1.0:5")
    first, last = _rate(low, word), _rate(rest[0], word)
    count = int(rest[1]) if rest[1].strip().isdecimal() else 0
    if not 2 <= count <= MOST_STEPS:
        raise UsageError(f"--rate {word!r}: COUNT must be a whole number from 2 to {MOST_STEPS:,}")
    if first >= last:
        raise UsageError(f"--rate {word!r}: LOW must be below HIGH")
    return [first + (last - first) * i / (count - 1) for i in range(count)]


def _rate(text: str, word: str) -> Fraction:
    try:
        value = Decimal(text.strip())
    except InvalidOperation:
        raise UsageError(f"--rate {word!r}: {text!r} is not a number of programs per second") from None
    if not (value.is_finite() and value > 0 and 0 < float(value) < math.inf):
        raise UsageError(f"--rate must be a finite number of programs per second above 0, got {text}")
    return Fraction(value)


def variations(words: Sequence[str]) -> dict[str, list[str]]:
    """``scheduler.beta=1,2,4`` of a repeated option as name and values. Raises UsageError."""
    found: dict[str, list[str]] = {}
    for word in words:
        name, equals, text = (part.strip() for part in word.partition("="))
        values = [value.strip() for value in text.split(",")]
        if not equals or not name or not all(values):
            raise UsageError(f"--vary takes NAME=VALUE,VALUE,..., got {word!r}")
        if name in found:
            raise UsageError(f"--vary {name} is given twice: put all its values in one")
        found[name] = list(dict.fromkeys(values))
    return found


def varied(config: RunConfig, values: Mapping[str, str]) -> RunConfig:
    """``config`` with some settings changed. Raises UsageError."""
    for name, value in values.items():
        if "." in name:
            _free(name, config.knobs, "--knob")
            config = replace(config, knobs={**config.knobs, name: value})
        elif name in WHOLE:
            if not value.isdecimal():
                raise UsageError(f"--vary {name} takes whole numbers, got {value!r}")
            changed: dict[str, Any] = {name: int(value)}
            config = replace(config, **changed)
        elif name in NAMES:
            changed = {name: value}
            config = replace(config, **changed)
        else:
            _free(name, config.parameters, "-p")
            config = replace(config, parameters={**config.parameters, name: value})
    return config


def _free(name: str, given: Mapping[str, str], option: str) -> None:
    if name in given:
        raise UsageError(f"{name} is given by both {option} and --vary: leave one out")


def words(grid: Grid) -> list[str]:
    """The command line that repeats the sweep; values that are defaults are left out."""
    named: dict[str, Sequence[str]] = {
        "--system": grid.systems,
        "--workload": [f"{form}@{name}" if form else name for form, name in grid.workloads],
        "--rate": [repr(rate) for rate in grid.rates if rate is not None],
        "--model": () if tuple(grid.models) == Grid.models else grid.models,
        "--gpu": () if tuple(grid.gpus) == Grid.gpus or grid.base.engine == LIVE_ENGINE else grid.gpus,
        "--vary": [f"{name}={','.join(values)}" for name, values in grid.vary.items()],
        "--seeds": [str(grid.seeds)] if grid.seeds > 1 else (),
        "--n": [_counts(grid)] if grid.counts else (),
    }
    base = replace(grid.base, n=None, horizon=None) if grid.counts else grid.base
    shared = replace(base, system="", workload="").words()[len(_OWN) :]
    return [*_SWEEP, *(w for name, values in named.items() for v in values for w in (name, v)), *shared]


def _counts(grid: Grid) -> str:
    own = [f"{name}={count}" for name, count in grid.counts.items()]
    rest = [str(grid.base.n)] if grid.base.n is not None else []
    return ",".join(own + rest + ([f"{grid.base.horizon:.12g}s"] if grid.base.horizon is not None else []))


_SWEEP = ("bench", "sweep")
_OWN = ("bench", "run", "--system", "", "--workload", "")
"""How the words of a run begin that names neither."""

"""What a result depends on: each part of the simulation changed by 15 %, one at a time, same programs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bench.cells import Failure
from bench.comparing import Cell, Group, spans
from bench.config import RunConfig
from bench.errors import BenchError, Exit, UsageError
from bench.plan import plan
from bench.repeat import check_code, config_of
from bench.results import manifest_of
from bench.run import RunResult
from bench.sweep import SweepProgress, run_cells
from bench.verdicts import ONE_SEED, RATIO, effect_of, value_of

PARTS = {
    "prefill": "latency.prefill",
    "decode": "latency.decode",
    "per-step overhead": "latency.overhead",
    "KV blocks": "engine.kv_scale",
    "PCIe": "engine.swap_scale",
}
"""What is varied, and the knob that multiplies it."""
KV_BLOCKS = "engine.kv_blocks"
FACTORS = (0.85, 1.15)
METRICS = (
    "program.response.mean",
    "program.response.p95",
    "program.s_per_token.mean_of_ratios",
    "program.s_per_token.ratio_of_means",
)
"""Headline numbers, by their names in docs/metrics.md."""
FOLDER = "varied"
"""Where varied cells go, in the folder of results: they are no results of their own there."""

Run = Callable[[Sequence[RunConfig]], Sequence[RunResult | Failure]]
"""Runs cells or finds them; outcomes in the order of the configurations."""


@dataclass(frozen=True)
class Variation:
    """One part of the simulation times ``factor``."""

    part: str
    factor: float

    @property
    def knob(self) -> str:
        """The knob that multiplies the part."""
        return PARTS[self.part]

    @property
    def name(self) -> str:
        """``prefill x 0.85``."""
        return f"{self.part} x {self.factor:g}"

    def idle(self, made: Mapping[str, Any]) -> str:
        """Why it changes nothing in the result whose manifest is ``made``; empty if it may."""
        if self.part == "PCIe" and made["identity"].get("transfer") is None:
            return "moves no KV between GPU and host, or moves it for free"
        return ""

    def of(self, config: RunConfig, made: Mapping[str, Any]) -> RunConfig:
        """``config`` with the part multiplied on top of what it has already; in FOLDER of its results."""
        own = float(made["identity"]["transfer"]["scale"]) if self.part == "PCIe" else 1.0
        return replace(config, knobs=self.on(config.knobs, own), out=config.out / FOLDER)

    def on(self, knobs: Mapping[str, str], own: float = 1.0) -> dict[str, str]:
        """The knobs of a valid run with the part multiplied; ``own``: its factor where they state none."""
        if self.part == "KV blocks" and KV_BLOCKS in knobs:  # a stated number is not scaled by kv_scale
            return {**knobs, KV_BLOCKS: str(max(1, round(int(knobs[KV_BLOCKS]) * self.factor)))}
        return {**knobs, self.knob: f"{float(knobs.get(self.knob, own)) * self.factor:.9g}"}


def variations() -> Iterator[Variation]:
    """Every part, each way."""
    for part in PARTS:
        for factor in FACTORS:
            yield Variation(part, factor)


def runner(workers: int | None = None, progress: SweepProgress | None = None) -> Run:
    """Runs on ``workers`` processes, one per core if None."""
    return lambda configs: run_cells(configs, workers=workers, progress=progress)


@dataclass(frozen=True)
class Side:
    """A group of results and the configuration of each of its seeds."""

    group: Group
    configs: Mapping[int, RunConfig]

    @classmethod
    def of(cls, group: Group, seeds: Sequence[int]) -> Side:
        """``seeds`` of a group: its first cell's configuration with the seed changed.

        Raises UsageError for results of other code, or that could not be made again.
        """
        first = group.first
        check_code(first.manifest, first.folder)
        config = config_of(first.manifest, first.folder)
        if (now := plan(config).cell) != first.summary["cell"]:
            raise UsageError(
                f"{first.folder} cannot be made again: its command now means another run ({now}); did a "
                f"trace, a policy or a calibration change? Run it again first:\n  {first.manifest['command']}"
            )
        return cls(group, {seed: config.with_seed(seed) for seed in seeds})

    @property
    def manifest(self) -> Mapping[str, Any]:
        """Of a cell that stands for all."""
        return self.group.first.manifest

    def varied(self, variation: Variation) -> list[RunConfig]:
        """What runs under a variation; nothing where it changes nothing."""
        if variation.idle(self.manifest):
            return []
        return [variation.of(config, self.manifest) for config in self.configs.values()]


def seeds_of(group: Group, count: int | None) -> list[int]:
    """The group's own seeds, or the ``count`` seeds from its first on."""
    first = min(group.cells)
    return sorted(group.cells) if count is None else list(range(first, first + count))


def base_cells(side: Side, run: Run) -> dict[int, Cell]:
    """The unvaried cells, by seed; those that are missing are run. Raises BenchError."""
    wanted = {seed: config for seed, config in side.configs.items() if seed not in side.group.cells}
    made = cells_of(run(list(wanted.values()))) if wanted else []
    if isinstance(made, str):
        raise UsageError(made)
    found = {**side.group.cells, **dict(zip(wanted, made, strict=True))}
    return {seed: found[seed] for seed in side.configs}


def cells_of(outcomes: Sequence[RunResult | Failure]) -> list[Cell] | str:
    """The cells, or why one of them could not be run. Raises what stops everything: a full disk, say."""
    for outcome in outcomes:
        if isinstance(outcome, Failure):
            if outcome.exit_code not in (Exit.USAGE, Exit.INVALID_RUN):
                raise Stopped(outcome)
            return outcome.message.splitlines()[0]
    return [Cell(o.folder, o.summary, manifest_of(o.folder)) for o in outcomes if isinstance(o, RunResult)]


class Stopped(BenchError):
    """A variation could not be run for a reason that will stop the others, too."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.exit_code = Exit(failure.exit_code)


def sensitivity(group: Group, seeds: Sequence[int], run: Run) -> dict[str, Any]:
    """Every variation's headline metrics over the unvaried ones, paired by seed, as plain data.

    ``rows``: part, factor, name, ``why`` (n/a, empty if it ran), and per metric ``effects``: ratio, low,
    high (95 %, Student's t of log ratios over seeds; None for one seed), ``why`` where there is no number.
    Raises BenchError.
    """
    side = Side.of(group, seeds)
    base = base_cells(side, run)
    wanted = [(variation, side.varied(variation)) for variation in variations()]
    outcomes = iter(run([config for _, configs in wanted for config in configs]))
    rows = []
    for variation, configs in wanted:
        found = cells_of([next(outcomes) for _ in configs]) if configs else []
        rows.append(_row(variation, side, base, found))
    return {"seeds": list(seeds), "metrics": list(METRICS), "rows": rows, "level": 0.95}


def _row(
    variation: Variation, side: Side, base: Mapping[int, Cell], found: list[Cell] | str
) -> dict[str, Any]:
    row: dict[str, Any] = {"part": variation.part, "factor": variation.factor, "name": variation.name}
    if isinstance(found, str):
        return row | {"why": f"could not be run: {found}", "effects": {}}
    if why := variation.idle(side.manifest):
        return row | {"why": f"n/a: this system {why}", "effects": {}}
    new = dict(zip(base, found, strict=True))
    if other := others(base, new):
        return row | {"why": f"n/a: other programs fit (seed {spans(other)})", "effects": {}}
    return row | {"why": "", "effects": {name: effect(name, base, new) for name in METRICS}}


def others(base: Mapping[int, Cell], new: Mapping[int, Cell]) -> list[int]:
    """Seeds whose programs are not the same: fewer KV blocks may leave some out."""
    return [s for s in base if base[s].identity["programs"] != new[s].identity["programs"]]


def effect(name: str, base: Mapping[int, Cell], new: Mapping[int, Cell]) -> dict[str, Any]:
    """NEW / BASE of a metric with its interval over seeds."""
    before, after = ({s: c.summary["metrics"].get(name) for s, c in of.items()} for of in (base, new))
    found = effect_of(name, before, after, in_pairs=True)
    if found.contrast is not None and found.scale == RATIO:
        low, high = found.contrast.interval()
        return {"ratio": found.shown(found.contrast.mean), "low": found.shown(low), "high": found.shown(high),
                "why": ""}  # fmt: skip
    none = {"ratio": None, "low": None, "high": None, "why": found.why}
    if found.why != ONE_SEED or found.scale != RATIO:
        missing = [e or {} for side in (before, after) for e in side.values() if math.isnan(value_of(e))]
        note = missing[0].get("note") or "no such number" if missing else "not above 0, so it has no ratio"
        return none | {"why": f"{name}: {note}"}
    a, b = (value_of(next(iter(side.values()))) for side in (before, after))
    return none | {"ratio": b / a}

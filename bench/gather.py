"""Finished results on disk, as rows of frames that figures take (docs/report.md)."""

from __future__ import annotations

import hashlib
import json
import math
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from bench.errors import MissingError, UsageError
from bench.results import manifest_of, summary_of
from bench.sensitivity import FOLDER as VARIED
from bench.stats import t_interval

Progress = Callable[[int, int], None]

BINS = 8
SYSTEM_WORDS = ("--scheduler", "--router", "--replicas", "--engine", "--knob")
WORKLOAD_WORDS = ("-p", "--on-overflow")
SETUP = ("system", "guests", "engine", "engine_config", "latency", "replicas")
NO_RATE = ("horizon", "concurrency", "recorded")
CONDITIONS = ("engine", "latency", "replicas")
"""How options begin that say what serves rather than which policy."""
RECORDED = "record_decisions"
"""An option of what is written down, which changes no number."""
PLACE = ["workload", "model", "system", "rate", "load"]
EXEC = ("prefill", "reprefill", "decode", "swap")
CALLS = ["program", "output_tokens", "aborted", "wait_s", *(f"{part}_s" for part in EXEC)]
PATH_PARTS = ("wait", *EXEC, "tool", "think", "overhead")


def _hash(data: Any) -> str:
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True)
class Cell:
    """A finished result: its folder, summary and manifest."""

    folder: Path
    summary: Mapping[str, Any]
    manifest: Mapping[str, Any]

    @property
    def arrivals(self) -> tuple[str, float]:
        """Kind and rate (programs/s); the rate is NaN in a closed loop and at recorded times."""
        given = self.manifest["identity"]["arrivals"]
        kind = next((k for k in given if k not in NO_RATE), "")
        return kind, math.nan if not kind else float(given[kind])

    @property
    def horizon(self) -> float:
        """Seconds in which programs were to arrive: what was asked for, or programs / rate."""
        given = self.manifest["identity"]["arrivals"].get("horizon")
        return float(given) if given is not None else self.manifest["identity"]["n"] / self.arrivals[1]

    @property
    def load(self) -> str:
        """The load in words, without the number of programs."""
        given, (kind, rate) = self.manifest["identity"]["arrivals"], self.arrivals
        if kind:
            return f"{kind} {rate:g}/s"
        return f"{given['concurrency']} at all times" if "concurrency" in given else "recorded times"

    @property
    def run(self) -> str:
        """All that decides the numbers but the code: equal for the same run made again."""
        return _hash({k: v for k, v in self.manifest["identity"].items() if k not in ("code", "format")})

    @property
    def setup(self) -> str:
        """What serves the programs: equal for cells that may share a line."""
        given = {k: self.manifest["identity"].get(k) for k in SETUP}
        engine = {k: v for k, v in (given["engine_config"] or {}).items() if k != RECORDED}
        return _hash(given | {"engine_config": engine})

    @property
    def content(self) -> str:
        """What the programs are, whatever their rate and number."""
        return _hash({k: v for k, v in self.manifest["workload"]["parameters"].items() if k != "rate"})

    def options(self, names: Sequence[str]) -> list[str]:
        """The values of some options in the command that made it (``scheduler.beta=3``)."""
        words = shlex.split(str(self.manifest.get("command", "")))
        return [
            value if "=" in value else f"{name.strip('-')}={value}"
            for name, value in pairwise(words)
            if name in names and not value.startswith(f"engine.{RECORDED}=")
        ]


class Found(NamedTuple):
    """What is in some folders. ``unfinished``: folder -> why its result is not used."""

    cells: list[Cell]
    unfinished: dict[str, str]


def find(folders: Sequence[Path]) -> Found:
    """Every result in and under ``folders``, each cell once. Raises UsageError for what is no folder."""
    cells: dict[str, Cell] = {}
    unfinished: dict[str, str] = {}
    runs: dict[str, Cell] = {}
    for folder in folders:
        if not folder.is_dir():
            raise UsageError(f"{folder} is no folder: give folders of results, such as a sweep's --out")
        for place in sorted({p.parent for p in folder.rglob("manifest.json")}):
            if VARIED in place.relative_to(folder).parts:
                continue  # of a card's sensitivity: no results of their own
            try:
                cell = Cell(place, summary_of(place), manifest_of(place))
            except MissingError as error:
                unfinished[str(place)] = str(error)
                continue
            cells.setdefault(str(cell.summary["cell"]), cell)
    for cell in sorted(cells.values(), key=lambda c: (_written(c), c.summary["cell"])):
        if (old := runs.get(cell.run)) is not None:
            unfinished[str(old.folder)] = (
                f"the same run was made again later, by other code, in {cell.folder}"
            )
        runs[cell.run] = cell
    return Found(sorted(runs.values(), key=_order), unfinished)


def _written(cell: Cell) -> float:
    return (cell.folder / "summary.json").stat().st_mtime


def _order(cell: Cell) -> tuple[Any, ...]:
    summary, rate = cell.summary, cell.arrivals[1]
    return summary["workload"], -1.0 if math.isnan(rate) else rate, summary["seed"], summary["cell"]


@dataclass(frozen=True)
class Labels:
    """What cells are called in a picture: as short as tells them apart.

    Options that are not common to all cells are said: ``conditions`` (names of options of what serves, the
    same for all that ran the same programs on the same model) with the model, the others with the system.
    Where set-ups differ all the same (a system was changed in between), their hash is. So two never share
    a name.
    """

    common: frozenset[str]
    gpus: int
    clashes: frozenset[tuple[str, str]] = frozenset()
    conditions: frozenset[str] = frozenset()

    @classmethod
    def of(cls, cells: Sequence[Cell]) -> Labels:
        """For pictures of these cells."""
        sets = [set(cell.options(SYSTEM_WORDS + WORKLOAD_WORDS)) for cell in cells]
        common = frozenset(set.intersection(*sets)) if sets else frozenset()
        plain = cls(common, len({cell.manifest["gpu"] for cell in cells}))
        plain = replace(plain, conditions=plain._shared(cells))
        setups: dict[tuple[str, str], set[str]] = {}
        for cell in cells:
            setups.setdefault((plain.system(cell), plain.model(cell)), set()).add(cell.setup)
            setups.setdefault((plain.workload(cell), ""), set()).add(cell.content)
        return replace(plain, clashes=frozenset(name for name, found in setups.items() if len(found) > 1))

    def system(self, cell: Cell) -> str:
        """The system with the settings in which it differs from some other cell."""
        options = [w for w in cell.options(SYSTEM_WORDS) if _name(w) not in self.conditions]
        name = self._with(str(cell.summary["system"]), options)
        return f"{name} #{cell.setup[:4]}" if (name, self.model(cell)) in self.clashes else name

    def workload(self, cell: Cell) -> str:
        """The workload with its parameters, and how programs arrive if not Poisson."""
        kind = cell.arrivals[0]
        extra = [kind] if kind not in ("", "poisson") else []
        name = self._with(str(cell.summary["workload"]), extra + cell.options(WORKLOAD_WORDS))
        return f"{name} #{cell.content[:4]}" if (name, "") in self.clashes else name

    def model(self, cell: Cell) -> str:
        """The model; with its GPU where there are several, and with the conditions of its picture."""
        model, gpu = str(cell.manifest["model"]), str(cell.manifest["gpu"])
        options = [w for w in cell.options(SYSTEM_WORDS) if _name(w) in self.conditions]
        return self._with(f"{model}/{gpu}" if self.gpus > 1 else model, options)

    def _with(self, name: str, words: Sequence[str]) -> str:
        return " ".join([name, *joined([w for w in words if w not in self.common])])

    def _shared(self, cells: Sequence[Cell]) -> frozenset[str]:
        """Names of options of what serves that have one value (or none) in each picture."""
        seen: dict[tuple[str, str], list[frozenset[str]]] = {}
        for cell in cells:
            here = frozenset(w for w in cell.options(SYSTEM_WORDS) if w.startswith(CONDITIONS))
            seen.setdefault((self.workload(cell), self.model(cell)), []).append(here)
        every = {_name(w) for sets in seen.values() for here in sets for w in here}
        vary = {_name(w) for sets in seen.values() for here in sets for w in here ^ sets[0]}
        return frozenset(every - vary)


def _name(option: str) -> str:
    return option.partition("=")[0]


def joined(options: Sequence[str]) -> list[str]:
    """Options of one slot with one value as one: ``latency.prefill/decode=0.9``."""
    found: dict[tuple[str, str], list[str]] = {}
    for option in options:
        name, _, value = option.partition("=")
        slot, dot, knob = name.partition(".")
        found.setdefault((slot + dot, value), []).append(knob)
    return [f"{slot}{'/'.join(dict.fromkeys(knobs))}={value}" for (slot, value), knobs in found.items()]


def place(cell: Cell, labels: Labels) -> dict[str, Any]:
    """Where a cell's numbers belong in a picture."""
    return {
        "workload": labels.workload(cell),
        "model": labels.model(cell),
        "system": labels.system(cell),
        "rate": cell.arrivals[1],
        "load": cell.load,
    }


def longest(cells: Sequence[Cell], labels: Labels) -> list[Cell]:
    """Of cells at the same place and load, those of the longest horizon: past saturation a mean over
    several horizons means nothing."""

    def key(cell: Cell) -> tuple[Any, ...]:
        return labels.workload(cell), labels.model(cell), labels.system(cell), cell.load

    def size(cell: Cell) -> float:
        return cell.horizon if math.isfinite(cell.horizon) else float(cell.manifest["identity"]["n"])

    most: dict[tuple[Any, ...], float] = {}
    for cell in cells:
        most[key(cell)] = max(size(cell), most.get(key(cell), 0.0))
    return [cell for cell in cells if size(cell) == most[key(cell)]]


def point(cell: Cell, labels: Labels) -> dict[str, Any]:
    """A row of ``points``: what ran, and every number of the summary under its flat name."""
    summary = cell.summary
    trend = str(summary["trend"]["verdict"])
    return {
        **place(cell, labels),
        "gpu": cell.manifest["gpu"],
        "multiple": math.nan,
        "seed": summary["seed"],
        "horizon": cell.horizon,
        "programs": sum(summary["outcomes"].values()),
        "calls": summary["calls"],
        "badge": summary["badge"],
        "trend": trend,
        "sustainable": _sustainable(summary),
        "cell": summary["cell"],
        **{name: _number(entry["value"]) for name, entry in summary["metrics"].items()},
    }


def _sustainable(summary: Mapping[str, Any]) -> bool:
    """Whether the engines keep up with the calls; where that is not known, by the trend of programs."""
    kept = _number(summary["metrics"].get("sustained.kept_up", {}).get("value"))
    return summary["trend"]["verdict"] in ("steady", "closed loop") if math.isnan(kept) else kept == 1.0


def _number(value: Any) -> float:
    return math.nan if value is None else float(value)


class Logs:
    """What the event logs give beyond the summaries: bins and splits, cell by cell."""

    def __init__(self, labels: Labels) -> None:
        self._labels = labels
        self._edges: dict[tuple[str, str, str], Any] = {}
        self._bins: dict[str, list[dict[str, Any]]] = {"calls": [], "programs": []}
        self._splits: list[dict[str, Any]] = []

    def add(self, cell: Cell) -> None:
        """Read a cell's programs and calls. Raises MissingError if it cannot."""
        where = place(cell, self._labels)
        programs = _read(cell.folder, "programs", None)
        calls = _read(cell.folder, "calls", CALLS)
        done = programs[programs.outcome == "finished"]
        calls = calls.assign(exec_s=calls[[f"{part}_s" for part in EXEC]].sum(axis=1))
        whole = calls[~calls.aborted]
        self._bin("calls", where, whole.output_tokens, whole.wait_s, whole.exec_s)
        self._bin("programs", where, done.calls, done.wait_s, done.exec_s)
        self._splits += [where | row for row in _splits(done, calls[calls.program.isin(done.program)])]

    def _bin(self, of: str, where: Mapping[str, Any], size: Any, wait: Any, work: Any) -> None:
        if not len(size):
            return
        key = (of, str(where["workload"]), str(where["model"]))
        edges = self._edges.setdefault(key, edges_of(np.asarray(size)))
        which = np.searchsorted(edges, np.asarray(size), side="right").clip(1) - 1
        sums = pd.DataFrame(
            {"bin": which, "size": size.to_numpy(), "wait": wait.to_numpy(), "exec": work.to_numpy()}
        )
        for number, part in sums.groupby("bin"):
            ratio = part.wait.sum() / part["exec"].sum() if part["exec"].sum() else math.nan
            self._bins[of].append(
                {**where, "bin": number, "bin_low": part["size"].min(), "bin_high": part["size"].max(),
                 "n": len(part), "centre": part["size"].mean(), "ratio": ratio}
            )  # fmt: skip

    def bins(self, of: str) -> pd.DataFrame:
        """Wait over execution by decode steps of ``calls`` or by calls of ``programs``: the mean over
        seeds of each bin's sum of waiting over its sum of execution, with a t interval."""
        columns = [*PLACE, "bin_low", "bin_high", "n", "centre", "ratio", "low", "high"]
        return pd.DataFrame(list(self._pooled(of)), columns=columns)

    def _pooled(self, of: str) -> Iterator[dict[str, Any]]:
        if not self._bins[of]:
            return
        for values, part in pd.DataFrame(self._bins[of]).groupby([*PLACE, "bin"], dropna=False):
            estimate = t_interval(part.ratio.tolist())
            yield {
                **dict(zip(PLACE, values, strict=False)),
                "bin_low": part.bin_low.min(),
                "bin_high": part.bin_high.max(),
                "n": part.n.sum(),
                "centre": (part.centre * part.n).sum() / part.n.sum(),
                "ratio": estimate.value,
                "low": estimate.low,
                "high": estimate.high,
            }

    def split(self) -> pd.DataFrame:
        """Seconds per finished program by what they were, seeds averaged: all calls, and critical path."""
        keys = [*PLACE, "path"]
        columns = [*keys, *(f"{part}_s" for part in PATH_PARTS)]
        if not self._splits:
            return pd.DataFrame(columns=columns)
        return pd.DataFrame(self._splits).groupby(keys, dropna=False).mean().reset_index()[columns]


def edges_of(sizes: Any) -> Any:
    """Lower edges of at most BINS bins that hold about as many values each; equal values stay together."""
    return np.unique(np.quantile(sizes, np.arange(BINS) / BINS, method="higher"))


def _splits(done: pd.DataFrame, calls: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """Means over finished programs (s): of their calls' sums, and along their critical paths."""
    if done.empty:
        return
    yield {"path": "critical path"} | {f"{part}_s": float(done[f"cp_{part}_s"].mean()) for part in PATH_PARTS}
    sums = {f"{part}_s": float(calls[f"{part}_s"].sum()) / len(done) for part in ("wait", *EXEC)}
    waits = {"tool_s": float(done.tool_s.mean()), "think_s": float(done.think_s.mean()), "overhead_s": 0.0}
    yield {"path": "all calls"} | sums | waits


def _read(folder: Path, table: str, columns: list[str] | None) -> pd.DataFrame:
    path = folder / f"{table}.parquet"
    try:
        frame: pd.DataFrame = pq.ParquetFile(path).read(columns=columns).to_pandas()
    except (OSError, pa.ArrowException) as error:
        raise MissingError(f"cannot read {path}: {error}; run it again with --force") from None
    return frame

"""What is compared with what: results on disk in groups that differ only in their seed."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.errors import MissingError, UsageError
from bench.results import cells, summary_of

PER_SEED = ("seed", "programs")
"""Parts of a cell's identity that change with the seed; equal in all the rest is one group."""
WORKLOAD = ("workload", "n", "arrivals")
ENGINE = ("engine", "latency")
ALLOWED = ("workload", "engine")
_WORDS = ("description", "source", "name")  # of a system: they decide nothing
_DIGITS = 10  # of a hash, to people
_LONG = 60  # characters of a value in a list
_HASH = re.compile(r"[0-9a-f]{16,}")


@dataclass(frozen=True)
class Cell:
    """A finished result: what it was (``manifest``) and what came out (``summary``)."""

    folder: Path
    summary: Mapping[str, Any]
    manifest: Mapping[str, Any]

    @property
    def identity(self) -> Mapping[str, Any]:
        """All that decided the result."""
        found: Mapping[str, Any] = self.manifest["identity"]
        return found


@dataclass(frozen=True)
class Group:
    """Cells that differ only in their seed, by seed; ``left_out`` says which are not finished."""

    id: str
    where: Path
    cells: Mapping[int, Cell]
    left_out: Sequence[str] = ()

    @property
    def first(self) -> Cell:
        """A cell that stands for what all have in common."""
        return self.cells[min(self.cells)]

    def label(self) -> str:
        """One line: group, what ran, and its seeds."""
        s = self.first.summary
        return f"{self.id}  {s['system']} on {s['workload']}, {self.load}, seeds {spans(self.cells)}"

    @property
    def load(self) -> str:
        """The load in words; without the number of programs where each seed has its own."""
        loads = {str(cell.summary["load"]) for cell in self.cells.values()}
        return loads.pop() if len(loads) == 1 else str(self.first.summary["load"]).partition(", ")[2]


@dataclass(frozen=True)
class Choice:
    """What narrows a folder down to one group; None and empty: anything."""

    system: str | None = None
    workload: str | None = None
    rate: float | None = None
    group: str | None = None
    seeds: frozenset[int] = field(default_factory=frozenset)

    def takes(self, group: Group) -> bool:
        """Whether a group is meant."""
        summary = group.first.summary
        name = str(summary["workload"])
        return (
            self.system in (None, summary["system"])
            and self.workload in (None, name, name.partition(":")[0])
            and (self.rate is None or f"{self.rate:g}/s" in str(summary["load"]).replace(",", " ").split())
            and (self.group is None or group.id.startswith(self.group))
        )

    def words(self) -> str:
        """What was asked for."""
        given = {"system": self.system, "workload": self.workload, "rate": self.rate, "group": self.group}
        return ", ".join(f"{k} {v}" for k, v in given.items() if v is not None)


def configuration(identity: Mapping[str, Any]) -> dict[str, Any]:
    """An identity without what changes with the seed; how many programs arrive in a horizon does."""
    arrivals = identity.get("arrivals") or {}
    dropped = {*PER_SEED, "n"} if arrivals.get("horizon") is not None else set(PER_SEED)
    return {k: v for k, v in identity.items() if k not in dropped}


def group_id(identity: Mapping[str, Any]) -> str:
    """Eight digits that all seeds of one configuration share."""
    text = json.dumps(configuration(identity), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def choose(path: Path, choice: Choice, side: str) -> Group:
    """The one group of results in ``path`` (a folder of results, or one result) that ``choice`` means.

    Raises MissingError where nothing is finished, UsageError where no group or several fit.
    """
    groups = read_groups(path, side)
    fitting = [g for g in groups if choice.takes(g)]
    if not fitting:
        raise UsageError(f"{side} {path} holds nothing with {choice.words()}; it holds:\n{_listed(groups)}")
    if len(fitting) > 1:
        raise UsageError(
            f"{side} {path} holds {len(fitting)} configurations; name one with --system, --workload, --rate "
            f"or --{side.lower()}-group:\n{_listed(fitting)}"
        )
    return _of_seeds(fitting[0], choice.seeds, side)


def _of_seeds(group: Group, seeds: frozenset[int], side: str) -> Group:
    if not seeds:
        return group
    if lacking := sorted(seeds - set(group.cells)):
        raise UsageError(
            f"--{side.lower()}-seeds: no finished result of seed {spans(lacking)} in {group.where}; "
            f"there are seeds {spans(group.cells)}"
        )
    return Group(group.id, group.where, {s: c for s, c in group.cells.items() if s in seeds}, group.left_out)


def read_groups(path: Path, side: str) -> list[Group]:
    """All groups in a folder, by what they are.

    Raises UsageError for what is no folder, MissingError if nothing in it is finished.
    """
    if not path.is_dir():
        raise UsageError(
            f"{side} {path} is no folder; give the --out folder of bench run, or one result in it"
        )
    single = (path / "manifest.json").exists() or (path / "summary.json").exists()
    found, left_out = _read([path] if single else _folders(path))
    if not found:
        more = f": {left_out[0][1]}" if left_out else " (see bench ls results)"
        raise MissingError(f"{side} {path} holds no finished result{more}")
    grouped: dict[str, dict[int, Cell]] = {}
    for cell in found:
        of, seed = grouped.setdefault(group_id(cell.identity), {}), int(cell.identity["seed"])
        if seed in of:
            raise UsageError(
                f"{side}: {of[seed].folder} and {cell.folder} are the same but for their programs"
            )
        of[seed] = cell
    groups = [
        Group(
            name,
            path,
            dict(sorted(of.items())),
            [text for of_group, text in left_out if of_group in (name, "")],
        )
        for name, of in grouped.items()
    ]
    return sorted(groups, key=lambda g: (g.first.summary["system"], g.first.summary["workload"], g.id))


def _folders(path: Path) -> list[Path]:
    started = {p.parent for p in path.glob("*/manifest.json")}
    return sorted(started | set(cells(path)))


def _read(folders: Sequence[Path]) -> tuple[list[Cell], list[tuple[str, str]]]:
    """The finished cells, and (group, why) of the others; group "" where that cannot be told."""
    found, left_out = [], []
    for folder in folders:
        try:
            summary = summary_of(folder)
            manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
            group_id(manifest["identity"]), int(manifest["identity"]["seed"])  # there, or left out
            found.append(Cell(folder, summary, manifest))
        except (MissingError, KeyError, TypeError, ValueError) as error:
            left_out.append(_unfinished(folder, error))
    return found, left_out


def _unfinished(folder: Path, error: Exception) -> tuple[str, str]:
    try:
        identity = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))["identity"]
        return group_id(identity), f"seed {identity['seed']} is not finished ({folder}: run it again)"
    except (OSError, ValueError, KeyError, TypeError):
        text = str(error) if isinstance(error, MissingError) else f"{folder}: no identity in its manifest"
        return "", text


def _listed(groups: Sequence[Group]) -> str:
    """A line per group, and under it what tells it from the others."""
    facts = [_facts(group.first) for group in groups]
    told = dict.fromkeys(k for group in groups for k in differences(groups[0].first, group.first))
    lines = []
    for group, known in zip(groups, facts, strict=True):
        words = ", ".join(f"{k} {known.get(k, '-')[:_LONG]}" for k in told)
        lines.append(f"  {group.label()}" + (f"\n            {words}" if words else ""))
    return "\n".join(lines)


def differences(base: Cell, new: Cell) -> dict[str, tuple[str, str]]:
    """What decides results and is not the same: dotted name -> (base, new), hashes cut short.

    What follows from something else that differs is left out: the hash of a system or workload
    that says what differs inside it, and the knobs of a policy that is another.
    """
    a, b = _facts(base), _facts(new)
    found = {k: (a.get(k, "-"), b.get(k, "-")) for k in sorted(a | b) if a.get(k) != b.get(k)}
    for name in ("system", "workload"):
        if any(k.startswith(f"{name}.") for k in found):
            found.pop(name, None)
    others = [f"{name}_knobs." for name in ("system.scheduler", "system.router") if name in found]
    return {k: v for k, v in found.items() if not k.startswith(tuple(others))}


def _facts(cell: Cell) -> dict[str, str]:
    """Name -> value as text, for all that decides a result but its seed."""
    manifest = cell.manifest
    parts: dict[str, Any] = {
        "": configuration(cell.identity),
        "system": {k: v for k, v in manifest.get("system", {}).items() if k not in _WORDS},
        "workload": manifest.get("workload", {}).get("parameters", {}),
        "latency.table": manifest.get("latency_table", {}).get("name", ""),
    }
    return {name: text for prefix, value in parts.items() for name, text in _flat(prefix, value)}


def _flat(name: str, value: Any) -> Iterator[tuple[str, str]]:
    pairs = dict(value) if name.endswith("_knobs") else value
    if isinstance(pairs, Mapping):
        for key, inner in pairs.items():
            yield from _flat(f"{name}.{key}" if name else str(key), inner)
    else:
        text = value if isinstance(value, str) else json.dumps(value)
        yield name, text[:_DIGITS] if _HASH.fullmatch(text) else text


def _link(identity: Mapping[str, Any]) -> dict[str, Any]:
    """The PCIe link; whether transfers are batched is the system's choice."""
    return {k: v for k, v in identity["transfer"].items() if k != "batched"}


def refused(base: Group, new: Group, pairs: Sequence[int]) -> dict[str, str]:
    """Why the two cannot be compared: ``workload`` and ``engine`` -> what differs. Empty if they can.

    ``pairs``: the seeds whose programs must be the same on both sides (common random numbers).
    """
    found = {}
    a, b = base.first, new.first
    between = differences(a, b)
    before, after = configuration(a.identity), configuration(b.identity)
    if any(before.get(k) != after.get(k) for k in WORKLOAD):
        found["workload"] = _told(between, WORKLOAD)
    elif other := [
        s for s in pairs if base.cells[s].identity["programs"] != new.cells[s].identity["programs"]
    ]:
        found["workload"] = (
            f"the programs of seed {spans(other)} are others, though drawn from the same workload"
        )
    moved = before.get("transfer") and after.get("transfer") and _link(before) != _link(after)
    if _kind(a) != _kind(b) or moved or any(before.get(k) != after.get(k) for k in ENGINE):
        what = _told(between, (*ENGINE, "transfer"))
        found["engine"] = f"BASE {a.summary['badge']}\n  NEW  {b.summary['badge']}\n  {what}"
    return found


def _kind(cell: Cell) -> str:
    """SIMULATED or MEASURED: the badge's first word."""
    return str(cell.summary["badge"]).partition(" ")[0]


MOST_TOLD = 6
"""Differences that a refusal lists."""


def _told(between: Mapping[str, tuple[str, str]], names: Sequence[str]) -> str:
    mine = [f"{k}: {a} -> {b}" for k, (a, b) in between.items() if k.partition(".")[0] in names]
    more = [f"and {len(mine) - MOST_TOLD} more"] if len(mine) > MOST_TOLD else []
    return ", ".join(mine[:MOST_TOLD] + more)


def spans(seeds: Mapping[int, Any] | Sequence[int]) -> str:
    """Seeds as people write them: 1-8, 12."""
    runs: list[list[int]] = []
    for seed in sorted(seeds):
        if runs and seed == runs[-1][1] + 1:
            runs[-1][1] = seed
        else:
            runs.append([seed, seed])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in runs) or "none"

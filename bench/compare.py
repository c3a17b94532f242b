"""Is NEW worse than BASE? Two groups of results, what they share and differ in, and the verdicts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from bench.agents.pairs import outcomes_between
from bench.comparing import Cell, Group, differences, refused, spans
from bench.errors import UsageError, unknown
from bench.paired import BOOTSTRAP_FROM
from bench.verdicts import EXITS, SHOWN, Question, effect_of, judge, overall, value_of


def compare(base: Group, new: Group, question: Question) -> dict[str, Any]:
    """The whole comparison as plain data. Raises UsageError where it would mean nothing."""
    question.check()
    pairs = sorted(set(base.cells) & set(new.cells))
    same = {c.folder.resolve() for c in base.cells.values()} & {
        c.folder.resolve() for c in new.cells.values()
    }
    if same:
        raise UsageError(
            f"BASE and NEW are the same results ({min(same)}): name two with --base-system and --new-system, "
            "--base-group and --new-group, or --base-seeds and --new-seeds"
        )
    if question.paired and not pairs:
        raise UsageError(
            f"BASE has seeds {spans(base.cells)} and NEW {spans(new.cells)}: none in common, so nothing "
            "can be paired; run both on the same seeds, or compare disjoint sets with --unpaired"
        )
    against = refused(base, new, pairs if question.paired else ())
    for name, what in against.items():
        if name not in question.allow:
            raise UsageError(f"{_MIXED[name]}; --allow {name} compares all the same\n  {what}")
    return _compared(base, new, question, pairs, against)


LISTED = 5
"""More results that were left out are counted, not listed."""
_MIXED = {
    "workload": "BASE and NEW are different workloads, so a difference says nothing of the systems",
    "engine": "BASE and NEW come from different engines or step times, so a difference may be theirs",
}


def _compared(
    base: Group, new: Group, question: Question, pairs: Sequence[int], against: Mapping[str, str]
) -> dict[str, Any]:
    a, b, repeats = distinct(base, new, pairs if question.paired else None)
    names = dict.fromkeys([*question.gates, *SHOWN, *base.first.summary["metrics"]])
    known = set(base.first.summary["metrics"]) | set(new.first.summary["metrics"])
    for gate in question.gates:
        if gate not in known:
            raise unknown("metric", gate, known)
    effects = [effect_of(n, _entries(a, n), _entries(b, n), question.paired) for n in names if n in known]
    rows = judge(effects, question)
    outcome = overall(rows)
    solved = outcomes_between(a, b, question.paired)
    return {
        "outcome": outcome,
        "exit": int(EXITS[outcome]),
        "mode": "paired" if question.paired else "unpaired",
        "method": _method(question, len(a)),
        "threshold": question.threshold,
        "seeds_for_verdict": question.seeds,
        "base": side(base, a),
        "new": side(new, b),
        "allowed": dict(against),
        "differences": {k: list(v) for k, v in differences(base.first, new.first).items()},
        "notes": [*repeats, *notes(base, new, a, b, question)],
        **({} if solved is None else {"outcomes": solved}),
        "metrics": rows,
        "shown": [n for n in names if n in question.gates or n in SHOWN],
    }


def _method(question: Question, seeds: int) -> str:
    if not question.paired:
        return "Welch's t over disjoint seeds"
    return "studentised bootstrap over paired seeds" if seeds >= BOOTSTRAP_FROM else "t over paired seeds"


def _entries(cells: Mapping[int, Cell], name: str) -> dict[int, Any]:
    return {seed: cell.summary["metrics"].get(name) for seed, cell in cells.items()}


def distinct(
    base: Group, new: Group, pairs: Sequence[int] | None
) -> tuple[dict[int, Cell], dict[int, Cell], list[str]]:
    """The cells that count, and notes on those that do not.

    Seeds that give the same results (a trace at its recorded arrivals has no chance in it)
    are one observation: only the first counts.
    """
    if pairs is not None:
        keys = {s: _results(base.cells[s]) + _results(new.cells[s]) for s in pairs}
        kept = _first_of_each(keys)
        return {s: base.cells[s] for s in kept}, {s: new.cells[s] for s in kept}, _repeats("", keys, kept)
    sides, said = [], []
    for name, group in (("BASE: ", base), ("NEW: ", new)):
        keys = {s: _results(cell) for s, cell in group.cells.items()}
        kept = _first_of_each(keys)
        sides.append({s: group.cells[s] for s in kept})
        said += _repeats(name, keys, kept)
    return sides[0], sides[1], said


def _results(cell: Cell) -> tuple[str, ...]:
    return (str(cell.summary["result_hash"]),)


def _first_of_each(keys: Mapping[int, tuple[str, ...]]) -> list[int]:
    first: dict[tuple[str, ...], int] = {}
    for seed in sorted(keys):
        first.setdefault(keys[seed], seed)
    return sorted(first.values())


def _repeats(side: str, keys: Mapping[int, Any], kept: Sequence[int]) -> list[str]:
    if not (again := sorted(set(keys) - set(kept))):
        return []
    return [
        f"{side}seeds {spans(again)} give the same results as seeds before them, bit for bit, and do not "
        "count: the seed changes nothing there (a trace at its recorded arrivals?)"
    ]


def notes(
    base: Group, new: Group, a: Mapping[int, Cell], b: Mapping[int, Cell], question: Question
) -> list[str]:
    """What a reader must know beside the numbers; nothing that was left out is left unsaid."""
    found = []
    for name, group, other in (("BASE", base, new), ("NEW", new, base)):
        found += [f"{name}: {text}" for text in group.left_out[:LISTED]]
        if (more := len(group.left_out) - LISTED) > 0:
            found.append(f"{name}: {more} more results cannot be read or are not finished (bench ls results)")
        if question.paired and (alone := sorted(set(group.cells) - set(other.cells))):
            found.append(f"{name} alone has seeds {spans(alone)}: not used")
    shared = sorted(set(base.cells) & set(new.cells))
    if not question.paired and shared:
        found.append(
            f"both sides have seeds {spans(shared)}: the same programs on both sides, which --unpaired takes "
            "for independent (its intervals are then too wide); without it they are paired"
        )
    if question.paired and "workload" in question.allow and base.first.identity != new.first.identity:
        found.append("paired by the number of the seed; with --allow workload the programs may be others")
    if question.paired and all(_results(a[s]) == _results(b[s]) for s in a):
        found.append("both sides give the same results, bit for bit: nothing that ran there differs")
    found += [text for name, cells in (("BASE", a), ("NEW", b)) if (text := _growing(name, cells))]
    shares = [_mean(cells, "system.finished_share") for cells in (a, b)]
    if shares[0] != shares[1]:
        found.append(
            f"BASE finished {shares[0]:.2%} of its programs and NEW {shares[1]:.2%}: latencies of programs "
            "are of those that finished"
        )
    return found


def _growing(name: str, cells: Mapping[int, Cell]) -> str:
    growing = sum(cell.summary["trend"]["verdict"] == "growing" for cell in cells.values())
    if not growing:
        return ""
    return (
        f"{name}: the backlog grows in {growing} of {len(cells)} runs (not sustained), so the effect on "
        "latencies depends on the number of programs"
    )


def _mean(cells: Mapping[int, Cell], name: str) -> float:
    values = [value_of(cell.summary["metrics"].get(name)) for cell in cells.values()]
    return math.fsum(values) / len(values)


def side(group: Group, cells: Mapping[int, Cell]) -> dict[str, Any]:
    """What one side is: where, what ran, by which code, on which seeds."""
    summary = group.first.summary
    commits = {str(c.manifest.get("git", {}).get("commit", "?"))[:10] for c in cells.values()}
    return {
        "where": str(group.where),
        "group": group.id,
        "load": group.load,
        **{k: summary[k] for k in ("system", "workload", "badge")},
        "card": summary.get("card"),
        "seeds": sorted(cells),
        "code": group.first.identity["code"],
        "commits": sorted(commits),
        "trend": sorted({str(c.summary["trend"]["verdict"]) for c in cells.values()}),
    }

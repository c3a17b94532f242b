"""Does a comparison's verdict survive a wrong simulator? Both sides again under every variation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench.cards import COMPARISON, keep
from bench.compare import compare
from bench.comparing import Cell, Group, spans
from bench.errors import BenchError
from bench.sensitivity import Run, Side, Variation, cells_of, others, variations
from bench.verdicts import EXPLORATORY, INCONCLUSIVE, Question

YES, NO, NONE = "yes", "no", "n/a"


@dataclass(frozen=True)
class Pair:
    """The two sides of a comparison and what was asked of them."""

    base: Side
    new: Side
    question: Question

    @classmethod
    def of(cls, base: Group, new: Group, found: Mapping[str, Any], question: Question) -> Pair:
        """The sides with the seeds that counted in ``found``. Raises UsageError (``Side.of``)."""
        return cls(Side.of(base, found["base"]["seeds"]), Side.of(new, found["new"]["seeds"]), question)

    def compare(self, found: Sequence[list[Cell] | str]) -> dict[str, Any] | str:
        """Of both sides' varied cells, or why there is none; a side that has none is as it was."""
        groups = []
        for side, cells in zip((self.base, self.new), found, strict=True):
            if isinstance(cells, str):
                return f"could not be run: {cells}"
            of = dict(zip(side.configs, cells, strict=True)) if cells else _of_seeds(side)
            if other := others(_of_seeds(side), of):
                return f"n/a: other programs fit (seed {spans(other)})"
            groups.append(Group(side.group.id, side.group.where, of))
        try:
            return compare(groups[0], groups[1], self.question)
        except BenchError as error:
            return f"cannot be compared: {str(error).splitlines()[0]}"


def _of_seeds(side: Side) -> dict[int, Cell]:
    return {seed: side.group.cells[seed] for seed in side.configs}


def survival(
    base: Group, new: Group, found: Mapping[str, Any], question: Question, run: Run
) -> dict[str, Any]:
    """What becomes of every gated verdict of the comparison ``found`` under each variation, as plain data.

    ``rows``: name, ``why`` it does not count (empty if it does), outcome, and per gated metric verdict,
    effect, low and high. ``overall`` and ``metrics``: survives (yes, no, n/a) and the variations that change
    the word. Raises BenchError.
    """
    pair = Pair.of(base, new, found, question)
    wanted = [(v, pair.base.varied(v), pair.new.varied(v)) for v in variations()]
    outcomes = iter(run([config for _, a, b in wanted for config in (*a, *b)]))
    rows = []
    for variation, *sides in wanted:
        cells = [cells_of([next(outcomes) for _ in side]) for side in sides]
        rows.append(_row(variation, pair, cells))
    gated = [row["name"] for row in found["metrics"] if row["gated"]]
    verdicts = {row["name"]: row["verdict"] for row in found["metrics"]}
    counted = [row for row in rows if not row["why"]]
    return {
        "rows": rows,
        "overall": _lasting(found["outcome"], {r["name"]: r["outcome"] for r in counted}),
        "metrics": {
            name: _lasting(verdicts[name], {r["name"]: r["metrics"][name]["verdict"] for r in counted})
            for name in gated
        },
        "tested": len(counted),
        "failed": [row["name"] for row in rows if row["why"] and not row["why"].startswith("n/a")],
        "seeds": found["base"]["seeds"],
    }


def _row(variation: Variation, pair: Pair, cells: Sequence[list[Cell] | str]) -> dict[str, Any]:
    row: dict[str, Any] = {"name": variation.name, "part": variation.part, "factor": variation.factor}
    none = row | {"outcome": "", "metrics": {}}
    if all(variation.idle(side.manifest) for side in (pair.base, pair.new)):
        return none | {"why": f"n/a: either side {variation.idle(pair.base.manifest)}"}
    found = pair.compare(cells)
    if isinstance(found, str):
        return none | {"why": found}
    kept = ("verdict", "effect", "low", "high", "scale")
    gated = {r["name"]: {k: r[k] for k in kept} for r in found["metrics"] if r["gated"]}
    return row | {"why": "", "outcome": found["outcome"], "metrics": gated}


def _lasting(word: str, under: Mapping[str, str]) -> dict[str, Any]:
    """Whether a verdict is the same under every variation; what cannot be told is none."""
    changed = {name: other for name, other in under.items() if other != word}
    if word in (EXPLORATORY, INCONCLUSIVE) or not under:
        return {"verdict": word, "survives": NONE, "changed": changed}
    return {"verdict": word, "survives": NO if changed else YES, "changed": changed}


def keep_survival(found: Mapping[str, Any], lasting: Mapping[str, Any], base: Group, new: Group) -> None:
    """Beside NEW's results, for reports. Raises MissingError."""
    sides = {
        name: {k: found[name][k] for k in ("system", "workload", "load", "seeds")} for name in ("base", "new")
    }
    data = {**lasting, **sides, "base_group": base.id, "new_group": new.id, "threshold": found["threshold"]}
    keep(COMPARISON, f"{base.id}-{new.id}", new.first.folder.parent, data)

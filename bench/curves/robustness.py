"""Which verdicts survive when the simulation is wrong: the experiment again, one part at a time changed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from bench.cards import EXPERIMENT, keep, read
from bench.cards import FOLDER as CARDS
from bench.code import code_digest
from bench.curves.grading import EXPLORATORY, NOT_TESTABLE
from bench.curves.runner import Options, Outcome, Progress, run
from bench.curves.spec import parse
from bench.errors import BenchError, Exit, UsageError
from bench.sensitivity import Variation
from bench.sensitivity import variations as parts
from reports.numbers import bounded
from reports.page import Section, Table
from systems.catalog import load_system

AS_IT_IS = "as it is"
UNTESTED, NO_VERDICT = "untested", "n/a (exploratory)"
NOT_VARIED = "not varied here"
SCALE = "robust"
"""The scale that is varied unless another is asked for, where an experiment has it."""


def variations(gpus: Sequence[str] = ("h100",)) -> Iterator[tuple[str, str | Variation]]:
    """(name, GPU or changed part) of every variation: other tables, then each part by 15 % both ways."""
    for gpu in gpus:
        yield gpu.upper(), gpu
    for part in parts():
        yield part.name, part


def names() -> list[str]:
    """What ``vary`` yields, in order."""
    return [AS_IT_IS, *(name for name, _ in variations())]


def vary(
    data: Mapping[str, Any], path: Path, options: Options, progress: Progress | None = None
) -> Iterator[tuple[str, Outcome | str]]:
    """The experiment as it is, then every variation, claims only; or why a variation cannot be run.

    Raises BenchError for what would stop the others, too.
    """
    plain = replace(options, beside=False)
    yield AS_IT_IS, run(data, path, plain, progress)
    curves = parse(data, path)
    systems = (*curves.systems, *curves.beside)
    for name, what in variations():
        try:
            yield name, run(data, path, changed(plain, what, systems), progress)
        except BenchError as error:
            if error.exit_code not in (Exit.USAGE, Exit.INVALID_RUN):
                raise
            yield name, str(error).splitlines()[0]


def changed(options: Options, what: str | Variation, systems: Sequence[str]) -> Options:
    """``options`` on another GPU, or with a part multiplied on top of what they and the systems have.

    ``systems``: names of the experiment's. Raises UsageError where that changes nothing, or where one
    knob cannot do it for all of them.
    """
    if isinstance(what, str):
        return replace(options, gpu=what)
    own = _swap_scale(systems) if what.part == "PCIe" and what.knob not in options.knobs else 1.0
    knobs = what.on(options.knobs, own)
    new = knobs.items() - options.knobs.items()
    if all(float(options.knobs.get(name, own)) == float(value) for name, value in new):
        raise UsageError(f"{what.name} changes nothing here")
    return replace(options, knobs=knobs)


def _swap_scale(systems: Sequence[str]) -> float:
    own = {str(load_system(name.partition("/")[0]).engine_option("swap_scale")) for name in systems}
    if len(own) > 1:
        raise UsageError(
            f"one engine.swap_scale cannot stand for those of the systems: {', '.join(sorted(own))}"
        )
    return float(own.pop())


def table(outcomes: Mapping[str, Outcome]) -> list[dict[str, Any]]:
    """A row per claim: what was got under each variation, and whether its transient verdict never changes."""
    rows = []
    for number, claim in enumerate(next(iter(outcomes.values())).claims):
        mine = {name: outcome.claims[number] for name, outcome in outcomes.items()}
        words = {name: str(row["transient"]).removeprefix(EXPLORATORY) for name, row in mine.items()}
        first = next(iter(words.values()))
        changed = [f"{name}: {word}" for name, word in words.items() if word != first]
        rows.append(
            {
                **{k: claim[k] for k in ("id", "model", "statement", "expected")},
                "verdict": claim["transient"],
                "got": {
                    name: bounded(*(float(row[k]) for k in ("got", "low", "high")))
                    for name, row in mine.items()
                },
                "survives": _survives(str(claim["transient"]), changed),
                "changed": changed,
            }
        )
    return rows


def _survives(verdict: str, changed: Sequence[str]) -> str:
    if verdict == NOT_TESTABLE and not changed:
        return UNTESTED
    if verdict.startswith(EXPLORATORY):
        return NO_VERDICT
    return "no" if changed else "yes"


def record(found: Mapping[str, Outcome | str], options: Options, experiment: str) -> dict[str, Any]:
    """What is kept of the variations that are done (``vary``)."""
    outcomes = {name: one for name, one in found.items() if isinstance(one, Outcome)}
    scale = outcomes[AS_IT_IS].curves.scale(options.scale)
    return {
        "experiment": experiment,
        "scale": options.scale,
        "horizon": scale.horizon,
        "seeds": scale.seeds,
        "variations": list(outcomes),
        "missing": [name for name in names() if name not in found],
        "failed": {name: why for name, why in found.items() if isinstance(why, str)},
        "claims": table(outcomes),
    }


def keep_record(found: Mapping[str, Any], options: Options) -> None:
    """In the folder of results, where pages of the experiment find it. Raises MissingError."""
    keep(EXPERIMENT, options.folder(str(found["experiment"])), options.out, found)


def kept(options: Options, experiment: str) -> dict[str, Any] | None:
    """The record of this scale, else of scale ``robust``; None if neither was varied."""
    for scale in dict.fromkeys((options.scale, SCALE)):
        name = replace(options, scale=scale).folder(experiment)
        if found := read(options.out / CARDS / f"{EXPERIMENT}-{name}.json"):
            return found
    return None


class Lasting(NamedTuple):
    """For a page: each claim's cell (none: not varied), what stands beside the cards, and the record."""

    column: list[str]
    note: str
    record: dict[str, Any] | None


def lasting(outcome: Outcome, experiment: str) -> Lasting:
    """Whether the claims of ``outcome`` survive, by what was varied in its folder of results."""
    found = kept(outcome.options, experiment)
    if found is None:
        last = outcome.curves.robustness
        command = f"bench reproduce {experiment} --robustness"
        note = f"Whether verdicts survive a wrong simulator: {NOT_VARIED} ({command})"
        return Lasting([], note + (f"; last varied: {last}" if last else ""), None)
    rows = {(row["id"], row["model"]): row for row in found["claims"]}
    cells = [_cell(rows.get((c["id"], c["model"])), found, outcome.options.scale) for c in outcome.claims]
    return Lasting(cells, _note(found), found)


def _cell(row: Mapping[str, Any] | None, found: Mapping[str, Any], scale: str) -> str:
    if row is None:
        return NOT_VARIED
    text = _survived(row, found)
    text += f" (scale {found['scale']}: {row['verdict']})" if found["scale"] != scale else ""
    return text + (" (so far)" if found["missing"] else "")


def _survived(row: Mapping[str, Any], found: Mapping[str, Any]) -> str:
    """The word and what changes it; of how many variations, where some could not be run."""
    run, failed = len(found["variations"]) - 1, len(found["failed"])
    of = f" ({run} of {run + failed})" if failed and row["survives"] == "yes" else ""
    return "; ".join([row["survives"] + of, *row["changed"]])


def _note(found: Mapping[str, Any]) -> str:
    """What "survives" rests on."""
    other = "" if found["code"] == code_digest() else f", by other code ({found['code']})"
    missing = f"; not done: {', '.join(found['missing'])}" if found["missing"] else ""
    missing += "".join(f"; {name} could not be run: {why}" for name, why in found["failed"].items())
    return (
        "Whether transient verdicts survive a wrong simulator: the experiment again at scale "
        f"{found['scale']} ({found['horizon']:g} s of arrivals, {found['seeds']} seeds{other}) under "
        f"{', '.join(found['variations'][1:])}{missing}."
    )


def _columns(found: Mapping[str, Any]) -> list[str]:
    return ["claim", "stated", "verdict", "survives", *found["variations"]]


def _rows(found: Mapping[str, Any]) -> list[list[str]]:
    """A row per claim that was tested under some variation: what was got under each."""
    return [
        [row["statement"], row["expected"], row["verdict"], _survived(row, found),
         *row["got"].values()]
        for row in found["claims"] if row["survives"] != UNTESTED
    ]  # fmt: skip


def section(found: Mapping[str, Any]) -> Section:
    """The record on a page."""
    return Section("Does it survive a wrong simulator?", _note(found), [Table(_columns(found), _rows(found))])


def markdown(found: Mapping[str, Any]) -> str:
    """The record as a table for a document: a row per claim, a column per variation."""
    columns = _columns(found)
    lines = ["| " + " | ".join(columns) + " |", "|---" * len(columns) + "|"]
    lines += ["| " + " | ".join(row) + " |" for row in _rows(found)]
    return "\n".join(lines) + "\n"

"""``bench compare``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bench.cli.common import Json, emit_json, page, verb

if TYPE_CHECKING:
    from bench.comparing import Group
    from bench.verdicts import Question

Option = typer.Option


@verb
def compare(
    base: Annotated[
        Path, typer.Argument(metavar="BASE", help="Folder of results (an --out), or one result.")
    ],
    new: Annotated[Path, typer.Argument(metavar="NEW", help="The same, to be judged against BASE.")],
    system: Annotated[str | None, Option(help="Only this system's results, on both sides.")] = None,
    workload: Annotated[str | None, Option(help="Only this workload's results, on both sides.")] = None,
    rate: Annotated[float | None, Option(help="Only results at so many programs per second.")] = None,
    base_system: Annotated[str | None, Option(help="BASE's system: two systems of one folder.")] = None,
    new_system: Annotated[str | None, Option(help="NEW's system.")] = None,
    base_group: Annotated[str | None, Option(help="BASE's group, as listed where several fit.")] = None,
    new_group: Annotated[str | None, Option(help="NEW's group.")] = None,
    base_seeds: Annotated[str | None, Option(help="Only these seeds of BASE: 1-8,12.")] = None,
    new_seeds: Annotated[str | None, Option(help="Only these seeds of NEW.")] = None,
    gate: Annotated[
        list[str] | None,
        Option(metavar="METRIC", help="A metric that decides, by its name in docs/metrics.md (repeatable)."),
    ] = None,
    threshold: Annotated[float, Option(help="Effects up to this are no difference: 0.05 is 5 %.")] = 0.05,
    unpaired: Annotated[bool, Option("--unpaired", help="Disjoint seeds: Welch intervals.")] = False,
    allow: Annotated[
        str | None, Option(metavar="WHAT", help="Compare although this differs: workload, engine, or both.")
    ] = None,
    markdown: Annotated[
        str | None, Option(metavar="FILE", help="Write it for a pull request; - is stdout.")
    ] = None,
    sensitivity: Annotated[
        bool, Option("--sensitivity", help="Both sides again, each part 15 % off: do verdicts survive?")
    ] = False,
    workers: Annotated[
        int | None, Option(min=1, max=1024, help="Processes for --sensitivity; default: one per core.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Is NEW worse than BASE? Exit 0 no, 3 yes, 5 it cannot be told (more seeds would)."""
    from bench.compare import compare as judge
    from bench.comparing import Choice, choose
    from bench.errors import UsageError

    question = _question(gate, threshold, unpaired, allow)
    if as_json and markdown == "-":
        raise UsageError("--json and --markdown - both want stdout: give --markdown a file")
    sides = (
        (base, "BASE", base_system or system, base_group, base_seeds),
        (new, "NEW", new_system or system, new_group, new_seeds),
    )
    base_of, new_of = (
        choose(path, Choice(of, workload, rate, group, _seeds(seeds, side)), side)
        for path, side, of, group, seeds in sides
    )
    found = judge(base_of, new_of, question)
    if sensitivity:
        found["sensitivity"] = _survival(base_of, new_of, found, question, workers)
    _show(found, as_json, markdown)
    raise typer.Exit(found["exit"])


def _survival(
    base: Group, new: Group, found: dict[str, Any], question: Question, workers: int | None
) -> dict[str, Any]:
    from bench.cli.sweep import progress
    from bench.sensitivity import runner
    from bench.survival import keep_survival, survival

    typer.echo(f"both sides under each variation, {len(found['base']['seeds'])} seeds", err=True)
    with progress() as report:
        lasting = survival(base, new, found, question, runner(workers, report))
    keep_survival(found, lasting, base, new)
    return lasting


def _question(gate: list[str] | None, threshold: float, unpaired: bool, allow: str | None) -> Question:
    from bench.comparing import ALLOWED
    from bench.errors import unknown
    from bench.verdicts import GATES, Question

    allowed = frozenset(word.strip() for word in (allow or "").split(",") if word.strip())
    if wrong := sorted(allowed - set(ALLOWED)):
        raise unknown("--allow", wrong[0], ALLOWED)
    question = Question(tuple(dict.fromkeys(gate or GATES)), threshold, not unpaired, allowed)
    question.check()
    return question


def _seeds(text: str | None, side: str) -> frozenset[int]:
    """``1-8,12`` as numbers; empty for None. Raises UsageError."""
    from bench.errors import UsageError

    found: set[int] = set()
    for part in (text or "").split(",") if text is not None else []:
        first, _, last = part.strip().partition("-")
        if not (first.isdigit() and (last or first).isdigit()) or int(last or first) < int(first):
            raise UsageError(f"--{side.lower()}-seeds takes seeds such as 1-8,12, got {text!r}")
        found |= set(range(int(first), int(last or first) + 1))
    return frozenset(found)


def _show(found: dict[str, Any], as_json: bool, markdown: str | None) -> None:
    from reports import compare as report

    if markdown is not None:
        write_markdown(report.markdown(found), markdown)
    if as_json:
        emit_json(found)
    elif markdown != "-":
        page(report.render(found))


def write_markdown(text: str, target: str) -> None:
    """Into a file, or to stdout for ``-``. Raises MissingError."""
    from bench.errors import MissingError
    from bench.files import write_atomic

    if target == "-":
        typer.echo(text)
        return
    try:
        write_atomic(Path(target), text + "\n")
    except OSError as error:
        raise MissingError(f"cannot write --markdown {target}: {error.strerror or error}") from None

"""``bench card``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bench.cli.common import Json, Out, emit_json, page, verb

if TYPE_CHECKING:
    from bench.comparing import Group

Option = typer.Option


@verb
def card(
    results: Annotated[
        list[str],
        typer.Argument(
            metavar="RESULT...|FOLDER", help="Results, their first digits, or folders of results."
        ),
    ],
    sensitivity: Annotated[
        bool, Option("--sensitivity", help="Run them again with each part of the simulation 15 % off.")
    ] = False,
    seeds: Annotated[
        int | None,
        Option(min=1, help="Vary so many seeds, from a result's first on; default: those there are."),
    ] = None,
    workers: Annotated[int | None, Option(min=1, max=1024, help="Processes; default: one per core.")] = None,
    out: Out = Path("results"),
    markdown: Annotated[
        str | None, Option(metavar="FILE", help="Write it for a document; - is stdout.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Why believe a result? Engine, table, calibration, known error, and what it depends on."""
    from bench.cards import comparisons, entry, groups_of
    from bench.errors import UsageError

    if seeds is not None and not sensitivity:
        raise UsageError("--seeds says how many seeds are varied: it needs --sensitivity")
    if as_json and markdown == "-":
        raise UsageError("--json and --markdown - both want stdout: give --markdown a file")
    groups = groups_of(results, out)
    if sensitivity:
        for group in groups:
            _vary(group, seeds, workers)
    found = [entry(group) for group in groups]
    lasting = comparisons((g.first.folder.parent for g in groups), (g.id for g in groups))
    _show(found, lasting, as_json, markdown)


def _vary(group: Group, seeds: int | None, workers: int | None) -> None:
    from bench.cards import keep_sensitivity
    from bench.cli.sweep import progress
    from bench.sensitivity import runner, seeds_of, sensitivity, variations

    chosen = seeds_of(group, seeds)
    typer.echo(f"{group.label()}: {len(list(variations()))} variations x {len(chosen)} seeds", err=True)
    with progress() as report:
        found = sensitivity(group, chosen, runner(workers, report))
    keep_sensitivity(group, found)


def _show(
    found: list[dict[str, Any]], lasting: list[dict[str, Any]], as_json: bool, markdown: str | None
) -> None:
    from bench.cli.compare import write_markdown
    from reports import cards as report

    if markdown is not None:
        write_markdown(report.markdown(found, lasting), markdown)
    if as_json:
        emit_json({"cards": found, "comparisons": lasting})
    elif markdown != "-":
        page(report.render(found, lasting))

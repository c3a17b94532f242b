"""``bench show``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bench.cli.common import Json, Out, emit_json, fresh_verb, page


@fresh_verb
def show(
    result: Annotated[str, typer.Argument(help="A result folder, or the first digits of its name.")],
    out: Out = Path("results"),
    verify: Annotated[bool, typer.Option("--verify", help="Read the tables and check their hash.")] = False,
    manifest: Annotated[bool, typer.Option("--manifest", help="Print the manifest as JSON.")] = False,
    as_json: Json = False,
) -> None:
    """Print a result again."""
    from bench.results import find, manifest_of, summary_of
    from bench.results import verify as check_hash

    folder = find(result, out)
    if manifest:
        emit_json(manifest_of(folder))
        return
    summary = summary_of(folder)
    if verify:
        check_hash(folder, summary)
        summary["result_hash"] += " (verified)"
    from bench.cards import shown

    summary = shown(summary, folder)
    if as_json:
        emit_json(summary)
        return
    from reports.summary import footer, render

    page(render(summary))
    typer.echo(footer(summary))

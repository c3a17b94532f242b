"""``bench report``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from bench.cli.common import Json, emit_json, fresh_verb, progress


@fresh_verb
def report(
    folders: Annotated[
        list[Path], typer.Argument(metavar="FOLDER...", help="Results, or folders of them (a sweep's --out).")
    ],
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Where the report goes.")] = Path("report"),
    title: Annotated[str, typer.Option(help="Title of the page.")] = "Benchmark report",
    as_json: Json = False,
) -> None:
    """Draw finished results: one HTML page that opens offline, and each figure as PNG, SVG and CSV."""
    from bench.agents.report import sections as agents
    from bench.manifest import command_line
    from bench.report import cards, found_in, frames_of, not_drawn, provenance, summary_text, write

    found = found_in(folders)
    with progress("reading results") as reading:
        data = frames_of(found.cells, reading)
    words = ["bench", "report", *map(str, folders), "--out", str(out), "--title", title]
    with progress("drawing") as drawing:
        files = write(
            out, title, data, summary=summary_text(found, data),
            sections=[*agents(found.cells), cards(found)],
            provenance=provenance(found, command_line(words)), progress=drawing,
        )  # fmt: skip
    gaps = not_drawn(data, {path.stem for path in files[1:]})
    facts: dict[str, Any] = {
        "report": files[0],
        "files": files[1:],
        "results": len(found.cells),
        "not_drawn": gaps,
        "unfinished": found.unfinished,
    }
    if as_json:
        emit_json(facts)
        return
    for name, why in gaps.items():
        typer.echo(f"not drawn: {name}: {why}")
    for folder, why in found.unfinished.items():
        typer.echo(f"not finished: {folder}: {why}", err=True)
    typer.echo(f"{len(found.cells)} results, {(len(files) - 1) // 3} figures: {files[0]}")

"""``bench fidelity``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from bench.cli.common import Json, Out, emit_json, fresh_verb

DATA = Path("..") / "shared" / "data"


@fresh_verb
def fidelity(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[PART]...", help="Parts by name or letter; default: all.")
    ] = None,
    data: Annotated[Path, typer.Option(metavar="FOLDER", help="Recordings of real engines.")] = DATA,
    out: Out = Path("results"),
    seed: Annotated[int, typer.Option(help="First seed.")] = 1,
    quick: Annotated[
        bool, typer.Option("--quick", help="See that it works; nothing is written down.")
    ] = False,
    write: Annotated[
        bool, typer.Option("--write/--no-write", help="Write docs/fidelity.md (of a checkout).")
    ] = True,
    page: Annotated[
        bool, typer.Option("--page", help="Run nothing: write docs/fidelity.md from the records.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Compare the simulator with real engines, part by part.

    Exit 3 if a bar is not met; 6 if a named part, or every part, cannot run here.
    """
    from bench.errors import Exit, MissingError, UsageError
    from bench.fidelity.part import Options
    from bench.fidelity.suite import DOC, choose, keep, rebuild, run, writable

    if page:
        if names:
            raise UsageError(f"--page runs nothing: leave {' '.join(names)} away")
        if not writable():
            raise MissingError("there are no records here: docs/fidelity/ is part of a checkout")
        rebuild()
        typer.echo(f"wrote docs/{DOC.name}")
        return
    options, found, missing = Options(data, out / "fidelity", seed, quick), [], []
    for part in choose(names or []):
        typer.echo(f"{part.name}: {part.title} ({part.cost})", err=True)
        try:
            one = run(part, options, lambda line: typer.echo(f"  {line}", err=True))
        except MissingError as error:
            missing.append(str(error))
            typer.echo(f"left out: {error}", err=True)
            continue
        found.append(one)
        if write and not quick and writable():
            keep(one)
    _show(found, as_json)
    if not all(bar["met"] for one in found for bar in one["bars"]):
        raise typer.Exit(int(Exit.REGRESSION))
    if missing and (names or not found):
        raise typer.Exit(int(Exit.MISSING))


def _show(found: list[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        emit_json(found)
        return
    for one in found:
        for bar in one["bars"]:
            got = "none" if bar["got"] is None else f"{bar['got']:.3g} {bar['unit']}"
            word = "met" if bar["met"] else "NOT MET"
            typer.echo(f"{one['name']}: {bar['what']}: {got} (at most {bar['most']:g} {bar['unit']}): {word}")

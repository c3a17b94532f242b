"""``bench reproduce``."""

from __future__ import annotations

from typing import Annotated

import typer

from bench.cli.common import Json, emit_json, page, verb


@verb
def reproduce(
    experiment: Annotated[str, typer.Argument(help="PAPER:FIGURE, such as autellix:fig2.")],
    as_json: Json = False,
) -> None:
    """Run a published experiment and judge its claims; exit 3 if one does not hold."""
    from bench.errors import Exit
    from bench.reproduce import reproduce as run_experiment

    report = run_experiment(experiment)
    if as_json:
        emit_json(report)
    else:
        from reports.schedule import render

        page(render(report))
    if not report["holds"]:
        raise typer.Exit(int(Exit.REGRESSION))

"""The ``bench`` command: one verb per module, each importing what it needs when it runs."""

from __future__ import annotations

import os
import sys

import typer

from bench.cli import (
    calibrate,
    card,
    compare,
    doctor,
    down,
    fidelity,
    gateway,
    ls,
    report,
    reproduce,
    run,
    show,
    sweep,
    trace,
    up,
    version,
)
from bench.cli.common import stdout_is_full

app = typer.Typer(
    name="bench",
    help="Benchmark harness for LLM-agent serving: programs arrive, policies serve them, one log measures.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 ok, 1 internal error, 2 usage, 3 a claim does not hold or NEW is worse, "
    "4 invalid run, 5 inconclusive, 6 environment or capability missing, 130 interrupted.",
)
app.command("run")(run.run)
app.command("sweep")(sweep.sweep)
app.command("ls")(ls.ls)
app.command("show")(show.show)
app.command("reproduce")(reproduce.reproduce)
app.command("compare")(compare.compare)
app.command("card")(card.card)
app.command("report")(report.report)
app.command("fidelity")(fidelity.fidelity)
app.command("calibrate")(calibrate.calibrate)
app.command("up")(up.up)
app.command("down")(down.down)
app.command("gateway")(gateway.gateway)
app.command("doctor")(doctor.doctor)
app.command("version")(version.version)
app.add_typer(trace.app, name="trace")


def main() -> None:
    """Entry point. The current folder is searched last, for ``pkg.mod:Obj`` of one's own."""
    sys.path.append(os.getcwd())
    try:
        app()
    except KeyboardInterrupt:
        sys.exit(130)
    except OSError as error:  # of --help and the like, which are no verbs
        if not stdout_is_full(error):
            raise
        sys.exit(6)


if __name__ == "__main__":
    main()

"""``bench doctor``."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bench.cli.common import Json, Out, emit_json, fresh_verb, page

if TYPE_CHECKING:
    from bench.doctor.contract import Verdict

Option = typer.Option
DEEP_S = 60.0


@fresh_verb
def doctor(
    need: Annotated[
        str | None, Option(metavar="NAME,...", help="Exit with 6 unless these are ok (vllm,docker,gpu,...).")
    ] = None,
    deep: Annotated[
        bool, Option("--deep", help="Also what takes long: import vLLM (up to a minute each).")
    ] = False,
    vllm_python: Annotated[
        Path | None,
        Option(metavar="PYTHON", help="Run the scheduler contract in the vLLM of this Python instead."),
    ] = None,
    out: Out = Path("results"),
    as_json: Json = False,
) -> None:
    """Say what can run here, and why not.

    Exit code 0 if the simulator works, 6 if it or what --need names does not; with --vllm-python 0 if our
    scheduler class works in that vLLM, 3 if it does not, 6 if there is no vLLM.
    """
    if vllm_python is not None:
        _contract(vllm_python, as_json)
        return
    from bench.doctor.check import Here
    from bench.doctor.suite import checks, examine, needed, require

    here = Here(deep=deep, results=out)
    here = replace(here, limit_s=DEEP_S) if deep else here
    known = checks()
    names = needed(need, known)
    found = examine(here, known)
    rows = [{"name": name, **asdict(one)} for name, one in found.items()]
    if as_json:
        emit_json({"checks": rows, "needed": names})
    else:
        from reports.listing import render

        page(render("this machine", rows))
    require(found, names)


def _contract(python: Path, as_json: bool) -> None:
    """Raises MissingError without vLLM; leaves with 3 if an item fails."""
    from bench.doctor.contract import check_contract
    from bench.errors import Exit

    def told(verdict: Verdict) -> None:
        if not as_json:
            typer.echo(str(verdict))

    report = check_contract(python, told)
    if as_json:
        emit_json(report.plain())
    else:
        typer.echo(report.conclusion)
    if not report.holds:
        raise typer.Exit(int(Exit.REGRESSION))

"""``bench trace``: stats and export."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bench.cli.common import Json, Params, Programs, Seed, emit_json, page, verb

if TYPE_CHECKING:
    from workloads.base import ProgramSet

app = typer.Typer(help="Look at a workload or a trace, or write it as a file.", no_args_is_help=True)

Source = Annotated[
    str, typer.Argument(help="NAME, NAME:PRESET, a file or folder, FORMAT@PATH, or pkg.mod:fn.")
]
Overflow = Annotated[str, typer.Option(help="refuse, skip or truncate prompts over the context.")]


@app.command("stats")
@verb
def stats(
    source: Source,
    n: Programs = None,
    seed: Seed = 1,
    param: Params = None,
    on_overflow: Overflow = "skip",
    as_json: Json = False,
) -> None:
    """Counts, lengths, tool times, prefix sharing, and whether least attained service should win."""
    from bench.foreign import programs_of
    from bench.trace import stats as stats_of

    programs = _programs(source, n, seed, param, on_overflow)
    with programs_of(source):
        found = stats_of(programs)
    if as_json:
        emit_json(found)
        return
    from reports.trace import render

    page(render(found))


@app.command("export")
@verb
def export(
    source: Source,
    output: Annotated[Path, typer.Option("--output", "-o", help="File to write (.jsonl or .jsonl.gz).")],
    n: Programs = None,
    seed: Seed = 1,
    param: Params = None,
    on_overflow: Overflow = "skip",
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
) -> None:
    """Write programs in our own lossless format, which every verb reads."""
    from bench.errors import UsageError
    from bench.files import unwritten
    from bench.foreign import programs_of
    from workloads.dryrun import dry_runs
    from workloads.own import export as write

    try:
        there = output.exists()
    except OSError as error:
        raise unwritten(error, output) from None
    if there and not force:
        raise UsageError(f"{output} exists; --force replaces it")
    programs = _programs(source, n, seed, param, on_overflow)
    part = output.with_name(f".part-{output.name}")
    with programs_of(source):
        dags = dry_runs(programs.programs)
    try:
        write(dags, part, programs.name)
        part.replace(output)
    except OSError as error:
        raise unwritten(error, output) from None
    finally:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)
    typer.echo(f"{output}: {len(programs.programs)} programs of {programs.name}")


def _programs(source: str, n: int | None, seed: int, param: list[str] | None, on_overflow: str) -> ProgramSet:
    from bench.cli.run import split_format
    from bench.config import RunConfig, pairs
    from bench.plan import enough, load_programs

    form, path = split_format(source)
    config = RunConfig(
        "", path, n=n, seed=seed, parameters=pairs(param or [], "-p"), on_overflow=on_overflow, format=form
    )
    programs = load_programs(config)
    enough(programs, config)
    return programs

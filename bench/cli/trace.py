"""``bench trace``: stats, convert and fit."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bench.cli.common import Json, Params, Programs, Seed, emit_json, fresh_verb, page, progress

if TYPE_CHECKING:
    from workloads.base import ProgramSet

app = typer.Typer(help="Look at a workload or a trace, convert it, or fit a generator.", no_args_is_help=True)

Source = Annotated[
    str, typer.Argument(help="NAME, NAME:PRESET, a file or folder, FORMAT@PATH, or pkg.mod:fn.")
]
Overflow = Annotated[str, typer.Option(help="refuse, skip or truncate prompts over the context.")]
Strict = Annotated[
    bool, typer.Option("--strict", help="Refuse a trace in which anything is skipped or repaired.")
]
CapIdle = Annotated[
    float | None, typer.Option(metavar="SECONDS", help="No tool, wait or gap of a trace is longer.")
]
ScaleRate = Annotated[
    float | None, typer.Option(metavar="FACTOR", help="Recorded arrivals that many times as fast.")
]
Force = Annotated[bool, typer.Option("--force", help="Replace an existing file.")]


@app.command("stats")
@fresh_verb
def stats(
    source: Source,
    n: Programs = None,
    seed: Seed = 1,
    param: Params = None,
    on_overflow: Overflow = "skip",
    strict: Strict = False,
    cap_idle: CapIdle = None,
    scale_rate: ScaleRate = None,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also write one page with plots (.html).")
    ] = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Lengths, tool times, arrivals, prefix sharing, and whether least attained service should win."""
    from bench.trace import stats_of
    from bench.trace_survey import survey

    options = _trace_options(strict, cap_idle, scale_rate)
    programs = _programs(source, n, seed, param, on_overflow, options)
    with _foreign(source), progress("looking at programs") as looking:
        found = survey(programs, looking)
    facts = stats_of(found)
    if html is not None:
        from bench.manifest import command_line
        from bench.trace_page import page as html_page

        words = ["bench", "trace", "stats", source, *(["--n", str(n)] if n else []), "--seed", str(seed)]
        words += [w for p in param or [] for w in ("-p", p)] + [
            w for k, v in options.items() for w in ("-p", f"{k}={v}")
        ]
        words += ["--on-overflow", on_overflow, "--html", str(html)]
        _write(html, html_page(found, facts, command_line(words)), force)
    if as_json:
        emit_json(facts)
        return
    from reports.trace import render

    page(render(facts))
    typer.echo(f"\nrun it      {_next(source, facts)}")
    if html is not None:
        typer.echo(f"with plots  {html}")


def _next(source: str, facts: dict[str, Any]) -> str:
    """The command that runs this workload."""
    found = facts["arrivals"]
    rate = " --rate R" if facts["format"] and (found is None or "cv" not in found) else ""
    return f"bench run --system plas --workload {source}{rate}"


@app.command("convert")
@fresh_verb
def convert(
    source: Source,
    output: Annotated[Path, typer.Option("--output", "-o", help="File to write (.gz: compressed).")],
    to: Annotated[
        str,
        typer.Option(
            metavar="FORMAT",
            help="own, aiperf, azure, burstgpt, mooncake, qwen-bailian, sharegpt or tracelab.",
        ),
    ] = "own",
    n: Programs = None,
    seed: Seed = 1,
    param: Params = None,
    on_overflow: Overflow = "skip",
    strict: Strict = False,
    cap_idle: CapIdle = None,
    scale_rate: ScaleRate = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Write programs in another format; says what that format could not hold. Default: our own, lossless."""
    from bench.trace_convert import convert as write

    options = _trace_options(strict, cap_idle, scale_rate)

    def programs() -> ProgramSet:
        return _programs(source, n, seed, param, on_overflow, options)

    with _foreign(source):
        facts = write(programs, to, output, force=force)
    if as_json:
        emit_json(facts)
        return
    from reports.trace_convert import lines

    for line in lines(facts):
        typer.echo(line)


@app.command("export", hidden=True)
@fresh_verb
def export(
    source: Source,
    output: Annotated[Path, typer.Option("--output", "-o", help="File to write (.jsonl or .jsonl.gz).")],
    n: Programs = None,
    seed: Seed = 1,
    param: Params = None,
    on_overflow: Overflow = "skip",
    force: Force = False,
) -> None:
    """The old name of ``convert --to own``."""
    from bench.trace_convert import convert as write

    with _foreign(source):
        facts = write(lambda: _programs(source, n, seed, param, on_overflow), "own", output, force=force)
    from reports.trace_convert import lines

    for line in lines(facts):
        typer.echo(line)


@app.command("fit")
@fresh_verb
def fit(
    source: Source,
    output: Annotated[Path, typer.Option("--output", "-o", help="Parameters to write (.toml).")],
    n: Programs = None,
    seed: Seed = 1,
    param: Params = None,
    on_overflow: Overflow = "skip",
    strict: Strict = False,
    cap_idle: CapIdle = None,
    scale_rate: ScaleRate = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Turn a trace into a generator (``--workload fitted:FILE.toml``), and say how well it matches."""
    from bench.errors import UsageError
    from bench.files import unwritten
    from bench.fit import fit as fit_of
    from bench.fit import toml
    from bench.fit_report import report
    from bench.trace_convert import check_free

    if output.suffix != ".toml":
        raise UsageError(f"{output}: a workload is read from a .toml file; give the output that ending")
    check_free(output, force)
    programs = _programs(source, n, seed, param, on_overflow, _trace_options(strict, cap_idle, scale_rate))
    with _foreign(source):
        fitted = fit_of(programs)
    _write(output, toml(fitted), force)
    try:
        facts = report(fitted, output, seed)
    except OSError as error:
        raise unwritten(error, output) from None
    if as_json:
        emit_json(facts)
        return
    from reports.trace_fit import render

    page(render(facts))


def _trace_options(strict: bool, cap_idle: float | None, scale_rate: float | None) -> dict[str, str]:
    """The options that only traces have, as the parameters a run takes with ``-p``."""
    given: dict[str, Any] = {
        "strict": "true" if strict else None,
        "cap_idle": cap_idle,
        "scale_rate": scale_rate,
    }
    return {name: str(value) for name, value in given.items() if value is not None}


def _write(path: Path, text: str, force: bool) -> None:
    from bench.trace_convert import check_free, whole_file

    check_free(path, force)
    with whole_file(path) as part:
        part.write_text(text, encoding="utf-8")


@contextmanager
def _foreign(source: str) -> Iterator[None]:
    from bench.foreign import programs_of

    with programs_of(source):
        yield


def _programs(
    source: str, n: int | None, seed: int, param: list[str] | None, on_overflow: str,
    options: dict[str, str] = {},
) -> ProgramSet:  # fmt: skip
    from bench.cli.run import split_format
    from bench.config import RunConfig, pairs
    from bench.plan import enough, load_programs

    form, path = split_format(source)
    parameters = {**pairs(param or [], "-p"), **options}
    config = RunConfig("", path, n=n, seed=seed, parameters=parameters, on_overflow=on_overflow, format=form)
    with progress(f"reading {path}") as reading:
        programs = load_programs(config, progress=reading)
    enough(programs, config)
    return programs

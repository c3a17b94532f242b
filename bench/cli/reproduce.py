"""``bench reproduce``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bench.cli.common import Json, Out, emit_json, page, verb

if TYPE_CHECKING:
    from bench.curves.runner import Options, Outcome
    from bench.sweep import Standing, SweepProgress

Option = typer.Option


@verb
def reproduce(
    experiment: Annotated[str, typer.Argument(help="PAPER:FIGURE, such as autellix:fig2.")],
    scale: Annotated[
        str | None, Option(help="How much is run, where an experiment has scales; default: small.")
    ] = None,
    gpu: Annotated[str | None, Option(help="Another GPU than the experiment's.")] = None,
    knob: Annotated[
        list[str] | None,
        Option(metavar="SLOT.NAME=VALUE", help="Changes every run: latency.decode=1.15 (repeatable)."),
    ] = None,
    report: Annotated[
        Path | None, Option(metavar="FOLDER", help="Where page, figures and tables go; default: in --out.")
    ] = None,
    only_claims: Annotated[bool, Option("--only-claims", help="Leave out horizons and sensitivity.")] = False,
    robustness: Annotated[
        bool,
        Option(
            "--robustness",
            help="Again under another table and each part 15 % off: which claims survive? "
            "Scale robust, where there is one.",
        ),
    ] = False,
    workers: Annotated[int | None, Option(min=1, max=1024, help="Processes; default: one per core.")] = None,
    out: Out = Path("results"),
    as_json: Json = False,
) -> None:
    """Run a published experiment and judge its claims.

    A small example that must hold exits 3 if it does not; that a figure's claim does not
    reproduce is a finding, and exits 0.
    """
    from bench.errors import UsageError
    from bench.reproduce import load

    data, path = load(experiment)
    if data["kind"] == "schedule":
        if scale or gpu or knob or report or only_claims or robustness:
            raise UsageError(f"{experiment} is one small example: it has no scale, GPU, knob or report")
        _schedule(data, path, as_json)
        return
    from bench.config import pairs
    from bench.curves.robustness import SCALE
    from bench.curves.runner import Options

    usual = SCALE if robustness and SCALE in data.get("scales", {}) else "small"
    beside = not (only_claims or robustness)
    options = Options(scale or usual, out, gpu, pairs(knob or [], "--knob"), workers, beside)
    if data["kind"] == "loop":
        if only_claims or robustness:
            raise UsageError(f"{experiment} runs its claims only; vary it with --knob or --gpu")
        found = _loop(experiment, data, path, options, report)
    else:
        found = _curves(experiment, data, path, options, report, robustness)
    if as_json:
        emit_json(found)
        return
    from reports.claims import render

    page(render(found))


def _schedule(data: dict[str, Any], path: Path, as_json: bool) -> None:
    from bench.card import of_schedule
    from bench.errors import Exit
    from bench.schedules import run

    found = run(data, path) | {"card": of_schedule(data)}
    if as_json:
        emit_json(found)
    else:
        from reports.schedule import render

        page(render(found))
    if not found["holds"]:
        raise typer.Exit(int(Exit.REGRESSION))


def _curves(
    name: str, data: dict[str, Any], path: Path, options: Options, report: Path | None, robustness: bool
) -> dict[str, Any]:
    import time

    from bench.curves.robustness import lasting, markdown, section
    from bench.curves.runner import facts, run, write
    from bench.files import write_atomic
    from bench.manifest import command_line

    began = time.monotonic()
    with _progress() as told:
        outcome = _varied(name, data, path, options, told) if robustness else run(data, path, options, told)
    computed = time.monotonic() - began
    folder = report or options.out / options.folder(name)
    repeat = command_line([*options.words(name), *(["--robustness"] if robustness else [])])
    survived = lasting(outcome, name)
    more = [section(survived.record)] if survived.record else []
    files = write(outcome, folder, repeat, survived.column, survived.note, more)
    found = facts(outcome, files) | {"computed_s": round(computed, 1), "repeat": repeat}
    if survived.record:
        found["varied"] = folder / "robustness.md"
        write_atomic(found["varied"], markdown(survived.record))
    return found | {"survives": survived.note, "robustness": survived.record}


def _loop(
    name: str, data: dict[str, Any], path: Path, options: Options, report: Path | None
) -> dict[str, Any]:
    import time

    from bench.loops.runner import facts, run, write
    from bench.manifest import command_line

    began = time.monotonic()
    with _progress() as told:
        outcome = run(data, path, options, told)
    computed = time.monotonic() - began
    repeat = command_line(options.words(name))
    files = write(outcome, report or options.out / options.folder(name), repeat)
    return facts(outcome, files) | {"computed_s": round(computed, 1), "repeat": repeat}


def _varied(
    name: str, data: dict[str, Any], path: Path, options: Options, told: Callable[[str, Standing], None]
) -> Outcome:
    """The experiment as it is; what becomes of it under each variation is kept, one after the other."""
    from bench.curves.robustness import keep_record, record, vary
    from bench.curves.runner import Outcome

    found: dict[str, Outcome | str] = {}
    for variation, outcome in vary(data, path, options, told):
        found[variation] = outcome
        typer.echo(f"{variation}: {outcome if isinstance(outcome, str) else 'done'}", err=True)
        keep_record(record(found, options, name), options)
    return next(one for one in found.values() if isinstance(one, Outcome))


@contextmanager
def _progress() -> Iterator[Callable[[str, Standing], None]]:
    """What a sweep shows, phase by phase."""
    from contextlib import ExitStack

    from bench.cli.sweep import progress

    with ExitStack() as stack:
        shown: dict[str, SweepProgress] = {}

        def told(phase: str, standing: Standing) -> None:
            if phase not in shown:
                stack.close()
                shown.clear()
                typer.echo(f"{phase}: {standing.cells:,} runs", err=True)
                shown[phase] = stack.enter_context(progress())
            shown[phase](standing)

        yield told

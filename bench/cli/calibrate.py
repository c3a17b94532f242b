"""``bench calibrate``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bench.cli.common import Json, emit_json, fresh_verb, progress

if TYPE_CHECKING:
    from bench.calibration.calibrate import Fitted
    from bench.calibration.recordings import Measured, Steps
    from bench.calibration.subject import Loops, Requests
    from systems.latency import Calibration

Option = typer.Option


@fresh_verb
def calibrate(
    source: Annotated[Path, typer.Argument(help="Recording of a real engine (docs/calibrate.md), or a run.")],
    model: Annotated[str | None, Option(help="Model; default: what the recording says.")] = None,
    gpu: Annotated[str | None, Option(help="GPU; default: what the recording says.")] = None,
    part: Annotated[
        float, Option("--fit", metavar="PART", help="Share of the requests, by arrival, to fit on.")
    ] = 0.5,
    out: Annotated[
        Path | None, Option(metavar="FILE", help="Where the calibration goes (a folder: NAME.json in it).")
    ] = None,
    name: Annotated[str | None, Option(help="Its name; default: MODEL-GPU.")] = None,
    knob: Annotated[
        list[str] | None,
        Option(metavar="engine.LIMIT=N", help="A limit the engine ran under (repeatable)."),
    ] = None,
    fmt: Annotated[str | None, Option("--format", help="Format, where it cannot be told.")] = None,
    force: Annotated[bool, Option("--force", help="Replace an existing file.")] = False,
    dry_run: Annotated[bool, Option("--dry-run", help="Say what would be fitted on what.")] = False,
    as_json: Json = False,
) -> None:
    """Fit (scale, ms per step) to a recorded run, print the error on the rest, write a calibration.

    A run uses it with --knob latency.calibration=FILE.
    """
    from bench.calibration.recordings import Steps, read
    from bench.errors import UsageError
    from workloads.base import WorkloadError

    if not 0.0 < part < 1.0:
        raise UsageError(f"--fit takes a share between 0 and 1 to fit on, got {part:g}")
    try:
        measured = read(source, fmt)
    except WorkloadError as error:
        raise UsageError(str(error)) from None
    command = _command(source, model, gpu, part, knob)
    if isinstance(measured, Steps):
        _of_steps(measured, name, model, gpu, part, out, force, dry_run, as_json)
        return
    subject = _subject(measured, model, gpu, knob)
    if dry_run:
        _plan(subject, part, as_json)
        return
    from bench.calibration.calibrate import calibrate as run
    from bench.calibration.calibrate import calibrations, names

    latency = next(iter(subject.latencies.values()))
    name = name or f"{latency.model}-{latency.gpu}"
    files = _files(out, list(names(subject, name).values()), force)
    with progress("fitting: simulations") as bar:
        found = run(subject, part, bar)
    made = calibrations(subject, found, name, command)
    written = _write(made, files)
    if as_json:
        emit_json(_json(subject, found, made, written))
    else:
        _page(subject, found, made, written)
    _warn(found)


def _subject(measured: Measured, model: str | None, gpu: str | None, knob: list[str] | None) -> Any:
    from bench.calibration.subject import subject
    from bench.config import LIMITS, RunConfig, pairs
    from bench.errors import unknown

    knobs = pairs(knob or [], "--knob")
    names = [f"engine.{limit}" for limit in LIMITS]
    for key in knobs:
        if key not in names:
            raise unknown("knob", key, names)
    limits = RunConfig("vllm-opt", "chatbot", knobs=knobs).limits()
    return subject(measured, model, gpu, limits)  # type: ignore[arg-type]


def _of_steps(
    measured: Steps, name: str | None, model: str | None, gpu: str | None, part: float,
    out: Path | None, force: bool, dry_run: bool, as_json: bool,
) -> None:  # fmt: skip
    """A log of steps is fitted without a replay."""
    from bench.calibration.steps import fit_steps, read_steps
    from bench.errors import UsageError

    path = measured.facts.path
    if model is None or gpu is None:
        raise UsageError("a step log does not say what it ran on: give --model and --gpu, any names")
    try:
        rows = len(read_steps(path).rows)
        cut = round(rows * part)
        if dry_run:
            typer.echo(f"{path}: a log of {rows} engine steps; would fit on the first {cut}")
            return
        name = name or f"{model}-{gpu}"
        files = _files(out, [name], force)
        made = fit_steps(path, name=name, model=model, gpu=gpu, part=slice(cut))
    except ValueError as error:
        raise UsageError(str(error)) from None
    written = _write([made], files)
    if as_json:
        emit_json({"calibrations": [_plain(made)], "written": written})
        return
    typer.echo(made.describe())
    _told(written)


def _files(out: Path | None, names: list[str], force: bool) -> list[Path]:
    """Where calibrations of these names go; several go into a folder. Raises UsageError for what is there."""
    from bench.errors import UsageError

    if out is None:
        return []
    if len(names) > 1 and out.suffix == ".json":
        raise UsageError(
            f"--out: {len(names)} calibrations (one per size of the model) go into a folder, not {out}"
        )
    files = [out if out.suffix == ".json" else out / f"{name}.json" for name in names]
    for file in files:
        if file.exists() and not force:
            raise UsageError(f"{file} exists: --force replaces it")
    return files


def _write(made: list[Calibration], files: list[Path]) -> list[str]:
    """Write each to its file, if there are files."""
    from bench.errors import MissingError
    from bench.files import write_atomic

    try:
        for file, one in zip(files, made, strict=False):
            file.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(file, one.as_json())
    except OSError as error:
        raise MissingError(f"cannot write {error.filename or file}: {error.strerror}") from None
    return [str(file) for file in files]


def _plan(subject: Requests | Loops, part: float, as_json: bool) -> None:
    """What would be done."""
    from bench.calibration.fit import FOLDS, first_part, folds
    from bench.calibration.subject import Loops

    loops = isinstance(subject, Loops)
    splits = folds(subject.usable) if loops else [first_part(len(subject.measured), part)]
    facts = {
        "format": subject.facts.format,
        "rows": len(subject.measured),
        "saturated": len(subject.measured) - len(subject.usable),
        "latency": ", ".join(latency.name for latency in subject.latencies.values()),
        "fit": f"{FOLDS} folds, row number mod {FOLDS}" if loops else f"first {part:.0%} by arrival",
        "fitted_and_held_out": [[len(a), len(b)] for a, b in splits],
    }
    if as_json:
        emit_json(facts)
        return
    for key, value in facts.items():
        text = ", ".join(f"{a} and {b}" for a, b in value) if isinstance(value, list) else value
        typer.echo(f"{key.replace('_', ' '):20} {text}")


def _json(
    subject: Requests | Loops, found: Fitted, made: list[Calibration], written: list[str]
) -> dict[str, Any]:
    return {
        "recording": str(subject.facts.path),
        "format": subject.facts.format,
        "notes": list(subject.facts.notes),
        **found.as_json(),
        "calibrations": [_plain(one) for one in made],
        "written": written,
    }


def _plain(made: Calibration) -> dict[str, Any]:
    from dataclasses import asdict

    return asdict(made)


def _page(subject: Requests | Loops, found: Fitted, made: list[Calibration], written: list[str]) -> None:
    names = ", ".join(latency.name for latency in subject.latencies.values())
    typer.echo(f"SIMULATED replay of {subject.facts.path} ({subject.facts.format}) on {names}")
    for note in subject.facts.notes:
        typer.echo(f"note: {note}")
    final = found.final
    typer.echo(
        f"fit    scale {final.scale:.4g}, {final.extra_ms:+.3g} ms per step ({final.evaluations} simulations)"
    )
    typer.echo(f"held out ({found.where}), error and its 95 % interval:")
    for title, rows in (("uncalibrated", found.raw), ("calibrated", found.held)):
        _errors(title, rows)
    for title, rows in (("saturated, raw", found.apart_raw), ("saturated", found.apart)):
        _errors(title, rows)
    for one in made[:1]:
        typer.echo(one.describe())
    _told(written)


def _warn(found: Fitted) -> None:
    """On stderr, where the fit does harm on rows that it has not seen."""
    if worse := [f"{held.metric} {held.mean.value:.2%}, {raw.mean.value:.2%}" for held, raw in found.worse]:
        typer.echo(
            "warning: on the held-out rows the fit is worse than none (mean error with it, without it): "
            f"{'; '.join(worse)}",
            err=True,
        )


def _errors(title: str, rows: list[Any]) -> None:
    for one in rows:
        typer.echo(
            f"  {title:14} {one.metric:4} n={one.n:<4} mean {one.mean}, median {one.median.value:.2%}, "
            f"of means {one.of_means.value:+.2%}"
        )


def _told(written: list[str]) -> None:
    for file in written:
        typer.echo(f"written {file}: bench run ... --knob latency.calibration={file}")


def _command(source: Path, model: str | None, gpu: str | None, part: float, knob: list[str] | None) -> str:
    """The command line that repeats the fit; of the source only the name."""
    from bench.manifest import command_line

    words = ["bench", "calibrate", source.name, *(["--model", model] if model else [])]
    words += [*(["--gpu", gpu] if gpu else []), "--fit", f"{part:g}"]
    return command_line(words + [w for k in knob or [] for w in ("--knob", k)])

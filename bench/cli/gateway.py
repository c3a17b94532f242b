"""``bench gateway``."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bench.cli.common import Json, fresh_verb
from vocabulary import INF

if TYPE_CHECKING:
    from systems.gateway.options import GatewayOptions

Option = typer.Option
OBSERVER = "session-pinned"
"""The system that decides least: engines order calls by themselves, and a program stays where it began."""


@fresh_verb
def gateway(
    engine: Annotated[
        list[str], Option(metavar="URL", help="http://HOST:PORT of an engine that runs (repeatable).")
    ],
    system: Annotated[
        str | None, Option(help="Whose router, gate and process table.", show_default="autellix")
    ] = None,
    router: Annotated[str | None, Option(help="Another router.")] = None,
    tools: Annotated[
        str, Option(help="Who says which tool runs: reply (its tool calls), or told (POST /programs/away).")
    ] = "reply",
    knob: Annotated[
        list[str] | None,
        Option(metavar="SLOT[.NAME]=VALUE", help="gate=program-cap, gate.programs=8; gateway.late=300 (s "
               "that engines may take to start), gateway.batched_tokens=2048 (of their steps) (repeatable)."),
    ] = None,
    observe: Annotated[
        bool, Option("--observe", help="Decide nothing but where a program stays; bodies go on as they are.")
    ] = False,
    record: Annotated[
        Path | None, Option(metavar="DIR", help="Record a workload there: lengths and hashes, no text.")
    ] = None,
    host: Annotated[str, Option(help="Address to listen on; 0.0.0.0 is all.")] = "127.0.0.1",
    port: Annotated[int, Option(help="0: a free one.")] = 8080,
    api_key_file: Annotated[
        Path | None, Option(metavar="FILE", help="Clients need one of these keys, one a line.")
    ] = None,
    engine_key_file: Annotated[
        Path | None, Option(metavar="FILE", help="Keys for the engines, a line each in their order; else "
                            "the client's is forwarded.")
    ] = None,
    calls: Annotated[
        list[str] | None, Option(metavar="FILE", help="Call log of each engine's scheduler, in their order.")
    ] = None,
    control: Annotated[
        list[str] | None, Option(metavar="PATH", help="Control socket of each engine, in their order.")
    ] = None,
    max_body: Annotated[int, Option(metavar="BYTES", help="Of a request.")] = 32 << 20,
    max_hold: Annotated[
        float, Option(metavar="SECONDS", help="A held call fails after so long; clients give up after 300.")
    ] = 240.0,
    heartbeat: Annotated[float, Option(metavar="SECONDS", help="To streaming clients that wait.")] = 15.0,
    lease: Annotated[float, Option(metavar="SECONDS", help="Programs without calls are over then.")] = 3600.0,
    log: Annotated[Path | None, Option(metavar="FILE", help="Event log.")] = None,
    as_json: Json = False,
) -> None:  # fmt: skip
    """Serve engines that run through one front door, until Ctrl-C (docs/gateway.md)."""
    from bench.config import pairs
    from bench.errors import UsageError
    from systems.gateway.options import GatewayOptions, Target

    knobs = pairs(knob or [], "--knob")
    late, batched_tokens = _taken(knobs, "late", 300.0), _taken(knobs, "batched_tokens", 2048, least=1)
    system, router = _observing(system, router, knobs) if observe else (system or "autellix", router)
    keys = _lines(engine_key_file, "--engine-key-file")
    each = {"--calls": calls or [], "--control": control or [], "--engine-key-file": keys}
    for name, values in each.items():
        if values and len(values) != len(engine):
            raise UsageError(f"{name}: one for each of {len(engine)} engines, got {len(values)}")
    try:
        targets = tuple(
            Target(
                url,
                _at(calls, i),
                _at(control, i),
                key=_at(keys, i) or "",
                max_num_batched_tokens=int(batched_tokens),
            )
            for i, url in enumerate(engine)
        )
        options = GatewayOptions(
            targets, system, router, None, None, knobs, host, port,
            tuple(_lines(api_key_file, "--api-key-file")), max_body, max_hold, heartbeat, lease, late_s=late,
            log=None if log is None else str(log), tools=tools, observe=observe,
            record=None if record is None else str(record),
        )  # fmt: skip
    except ValueError as error:
        raise UsageError(str(error)) from None
    _serve(options, as_json)


def _observing(system: str | None, router: str | None, knobs: Mapping[str, str]) -> tuple[str, str | None]:
    """(system, router) that decide nothing but where a program stays. Raises UsageError for a policy."""
    from bench.errors import UsageError

    given = [f"--system {system}"] * bool(system) + [f"--router {router}"] * bool(router)
    given += [f"--knob {name}={value}" for name, value in knobs.items()]
    if given:
        raise UsageError(f"--observe decides nothing: leave out {', '.join(given)}, or --observe")
    return OBSERVER, None


def _taken(knobs: dict[str, str], name: str, default: float, least: float = 0) -> float:
    """A number of the gateway's own among the knobs, taken out of them. Raises UsageError."""
    from bench.errors import UsageError

    value = knobs.pop(f"gateway.{name}", str(default))
    try:
        number = float(value)
    except ValueError:
        number = -1.0
    if not least <= number < INF:
        raise UsageError(f"--knob gateway.{name} must be a number of {least:g} or more, got {value!r}")
    return number


def _serve(options: GatewayOptions, as_json: bool) -> None:
    from bench.errors import MissingError, UsageError
    from systems.catalog import CatalogError
    from systems.gateway.server import bound, run

    try:
        with bound(options.host, options.port) as listening:
            run(options, _telling(options, as_json), listening)
    except CatalogError as error:
        raise UsageError(str(error)) from None
    except OSError as error:
        raise MissingError(f"{error.filename}: {error.strerror}" if error.filename else str(error)) from None


def _telling(options: GatewayOptions, as_json: bool) -> Callable[[str], None]:
    def tell(url: str) -> None:
        if as_json:
            facts: dict[str, Any] = {"url": url, "system": options.system}
            typer.echo(json.dumps(facts | {"engines": [one.url for one in options.targets]}))
        else:
            engines = ", ".join(one.url for one in options.targets)
            typer.echo(f"gateway  {url}  (system {options.system}; engines {engines})\nCtrl-C ends it.")
        if not options.api_keys and options.host not in ("127.0.0.1", "::1", "localhost"):
            typer.echo(
                "note: without --api-key-file, all who reach this address may use the engines", err=True
            )

    return tell


def _lines(path: Path | None, option: str) -> list[str]:
    """The lines of a file of keys. Raises UsageError if there are none."""
    from bench.errors import UsageError

    if path is None:
        return []
    try:
        found = [line.strip() for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        text = error.strerror if isinstance(error, OSError) else "it is no text"
        raise UsageError(f"{option} {path}: {text}") from None
    if not found:
        raise UsageError(f"{option} {path}: there is no key in it")
    return found


def _at(values: list[str] | None, number: int) -> str | None:
    return values[number] if values else None

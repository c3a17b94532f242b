"""``bench down``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bench.cli.common import Json, Out, emit_json, verb

if TYPE_CHECKING:
    from systems.provision.state import States


@verb
def down(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="A fleet of bench up.")] = None,
    all_: Annotated[bool, typer.Option("--all", help="Every fleet of the folder of results.")] = False,
    out: Out = Path("results"),
    as_json: Json = False,
) -> None:
    """End engines that `bench up` left running, and containers and sandboxes that a crash left. Does no harm
    twice: where nothing is up there is nothing to end. A name beside others that are up is refused."""
    from bench.errors import MissingError, UsageError
    from bench.files import explain
    from systems.engines.vllm_virtual import EngineUnavailable
    from systems.provision.state import States

    states = States(out / "up")
    if all_ and name is not None:
        raise UsageError(f"give {name} or --all, not both")
    try:
        done = {fleet: _end(states, fleet) for fleet in _chosen(states, name, all_)}
        swept, sandboxes = _sweep(), _sandboxes()
    except EngineUnavailable as error:
        raise MissingError(str(error)) from None
    except OSError as error:
        raise explain(error, out) from None
    if as_json:
        emit_json({"fleets": done, "containers_of_crashes": swept, "sandboxes_of_crashes": sandboxes})
        return
    for fleet, count in done.items():
        typer.echo(f"{fleet}: {count} engine{'s' * (count != 1)} ended")
    if swept:
        typer.echo(f"{len(swept)} container(s) that a crash had left: {', '.join(swept)}")
    for line in sandboxes:
        typer.echo(line)
    if not done and not swept and not sandboxes:
        typer.echo("nothing to end")


def _chosen(states: States, name: str | None, all_: bool) -> list[str]:
    """Raises UsageError if several are there and none was named, or others are there and not this one."""
    from bench.errors import UsageError

    names = states.names()
    if all_:
        return names
    if name is None:
        if len(names) > 1:
            raise UsageError(f"which one? {', '.join(names)} are there; or --all")
        return names
    try:
        states.path(name)
    except ValueError as error:
        raise UsageError(str(error)) from None
    if names and name not in names:
        raise UsageError(f"no fleet {name} is up; up are: {', '.join(names)}")
    return [name] if names else []


def _end(states: States, name: str) -> int:
    from systems.provision.state import end

    record = states.read(name)
    if record is None:
        return 0
    count = end(record, lambda line: typer.echo(line, err=True))
    states.forget(record)
    return count


def _sweep() -> list[str]:
    """Containers of ours whose starter is gone; none where there is no Docker engine."""
    from systems.engines.vllm_virtual import EngineUnavailable
    from systems.provision.docker_engine import connect, leftovers, remove

    try:
        client = connect()
    except EngineUnavailable:
        return []
    found: list[Any] = leftovers(client)
    for container in found:
        remove(container)
    return [str(container.name) for container in found]


def _sandboxes() -> list[str]:
    """Of agents' tools, whose run is gone: what became of each, a line."""
    from workloads.sandboxes.catalog import sweep

    return sweep()

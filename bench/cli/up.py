"""``bench up``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bench.cli.common import Json, Out, emit_json, fresh_verb

if TYPE_CHECKING:
    from systems.catalog import SystemSpec
    from systems.provision.build import Asked
    from systems.provision.engine import LiveEngine
    from systems.provision.state import Record, States

Option = typer.Option


@fresh_verb
def up(
    engine: Annotated[str, Option(help="vllm or sglang.")] = "vllm",
    how: Annotated[str, Option(help="process or docker.")] = "process",
    model: Annotated[
        str, Option(help="tiny-llama (random weights), a folder, or ORGANISATION/MODEL of the hub.")
    ] = "tiny-llama",
    system: Annotated[str, Option(help="Whose scheduler (bench ls systems).")] = "vllm-opt",
    replicas: Annotated[int, Option(help="Engines.")] = 1,
    name: Annotated[str, Option(help="Of the fleet, for bench down.")] = "default",
    port: Annotated[int, Option(help="Of the first engine; 0: free ones.")] = 0,
    device: Annotated[str, Option(help="auto, cpu or gpu.")] = "auto",
    gpus: Annotated[str, Option(help="all, or ids: 0,1 (each replica gets its own).")] = "",
    tensor_parallel: Annotated[int, Option(help="GPUs per engine.")] = 1,
    knob: Annotated[
        list[str] | None,
        Option(metavar="SLOT.NAME=VALUE", help="scheduler.beta=3, engine.max_num_seqs=64, engine.kv_blocks, "
               "engine.max_num_batched_tokens, engine.max_model_len (repeatable)."),
    ] = None,
    served_name: Annotated[str, Option(help="What requests call the model; default: its own name.")] = "",
    hf_cache: Annotated[Path | None, Option(metavar="FOLDER", help="Of the hub's models.")] = None,
    python: Annotated[
        Path | None, Option("--vllm-python", "--python", help="The Python that has the engine.")
    ] = None,
    image: Annotated[str, Option(help="Of containers; default: the engine's own.")] = "",
    pull: Annotated[bool, Option("--pull", help="Fetch the image first.")] = False,
    network: Annotated[str, Option(help="Of containers: auto, bridge or host.")] = "auto",
    shm: Annotated[str, Option(help="/dev/shm of a container.")] = "8g",
    control: Annotated[bool, Option("--control", help="A control socket each (docs/vllm.md).")] = False,
    flag: Annotated[
        list[str] | None, Option(metavar="WORD", help="One more word of its command line (repeatable).")
    ] = None,
    limit: Annotated[float, Option(metavar="SECONDS", help="An engine may take so long to start.")] = 600.0,
    out: Out = Path("results"),
    as_json: Json = False,
) -> None:  # fmt: skip
    """Start engines that go on running; `bench down` ends them."""
    from bench.config import pairs
    from bench.errors import MissingError, UsageError
    from bench.files import explain
    from systems.engines.vllm_virtual import EngineUnavailable
    from systems.provision.build import Asked
    from systems.provision.docker import ContainerOptions

    scheduler, limits = _knobs(pairs(knob or [], "--knob"))
    try:
        asked = Asked(
            engine, how, model, served_name, device, replicas, port, tensor_parallel, limits, control,
            hf_cache, python, tuple(flag or ()), ContainerOptions(image, gpus, shm, network, 0, pull),
        )  # fmt: skip
        record = _up(asked, _spec(system, scheduler), name, out / "up", limit)
    except ValueError as error:
        raise UsageError(str(error)) from None
    except EngineUnavailable as error:
        raise MissingError(str(error)) from None
    except OSError as error:
        raise explain(error, out) from None
    if as_json:
        emit_json(record.as_json())
        return
    for one in record.engines:
        typer.echo(one.url)
    typer.echo(f"up as {name}; bench down {name} ends {'it' if replicas == 1 else 'them'}", err=True)


def _knobs(given: Mapping[str, str]) -> tuple[dict[str, str], dict[str, int]]:
    """(for the system, limits). Raises UsageError."""
    from bench.errors import UsageError
    from systems.provision.build import LIMITS

    system, limits = {}, {}
    for name, value in given.items():
        slot, _, rest = name.partition(".")
        if slot == "engine" and rest in LIMITS:
            if not value.isascii() or not value.isdigit() or int(value) < 1:
                raise UsageError(f"--knob {name} must be a whole number of at least 1, got {value!r}")
            limits[rest] = int(value)
        else:
            system[name] = value
    return system, limits


def _spec(system: str, knobs: Mapping[str, str]) -> SystemSpec:
    from bench.errors import UsageError
    from systems.catalog import CatalogError, load_system

    try:
        return load_system(system, knobs=dict(knobs))
    except CatalogError as error:
        raise UsageError(str(error)) from None


def _up(asked: Asked, spec: SystemSpec, name: str, folder: Path, limit_s: float) -> Record:
    """Start the fleet and write down who is in it. Nothing stays if that fails or is interrupted."""
    from bench.errors import MissingError
    from bench.signals import terminated_as_interrupted
    from systems.capabilities import MissingCapability
    from systems.provision.build import engines
    from systems.provision.fleet import Fleet
    from systems.provision.state import States, end, standing

    states = States(folder)
    about = {"engine": asked.engine, "model": asked.model, "system": spec.name, "replicas": asked.replicas}
    record = _claimed(states, name, asked.how, about)

    def remember(engine: LiveEngine) -> None:
        record.engines.append(standing(engine))
        states.write(record)

    try:
        with terminated_as_interrupted():
            found = engines(asked, spec, folder / name, record.id)
            Fleet(found, _say, limit_s=limit_s, begun=remember).start()
            record.ready = True
            record.about["facts"] = [engine.facts() for engine in found]
            states.write(record)
    except BaseException as error:
        if record.engines:
            end(record, _say)  # the fleet has stopped them, unless Ctrl-C came after it had started
        states.forget(record)
        if isinstance(error, MissingCapability):
            raise MissingError(str(error)) from None
        raise
    return record


def _say(line: str) -> None:
    typer.echo(line, err=True)


def _claimed(states: States, name: str, how: str, about: dict[str, Any]) -> Record:
    """A new record under that name, where nothing runs under it. Raises UsageError if something does."""
    from bench.errors import UsageError
    from systems.provision.state import end

    old = states.read(name)
    there = old.standing() if old is not None else []
    if old is not None and (there or old.starting):
        where = ", ".join(one.url for one in there) or "it is just starting"
        raise UsageError(f"a fleet {name} is up already ({where}): `bench down {name}`, or another --name")
    if old is not None:
        end(old, _say)
        states.forget(old)
    try:
        return states.claim(name, how, about)
    except FileExistsError:
        raise UsageError(f"somebody else starts a fleet {name} now: take another --name") from None

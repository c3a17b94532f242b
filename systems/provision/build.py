"""From what a person asks for to servers: the options of an engine, and a replica each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from systems.capabilities import check, engine_options
from systems.catalog import SystemSpec
from systems.engines.vllm_server import ServerOptions, VllmServer
from systems.engines.vllm_virtual import EngineUnavailable
from systems.provision.docker import ContainerOptions, ContainerServer, split_gpus
from systems.provision.sglang import SglangOptions, SglangServer
from systems.vllm_host.tiny import write
from vocabulary import BLOCK

ENGINES = ("vllm", "sglang")
HOWS = ("process", "docker")
DEVICES = ("auto", "cpu", "gpu")
TINY = "tiny-llama"
"""A model of random weights, written in 0.1 s (``systems.vllm_host.tiny``)."""
_SGLANG = ("fcfs", "lpm", "dfs-weight")
"""Schedulers of the catalog that SGLang has itself."""
LIMITS = ("kv_blocks", "max_num_seqs", "max_num_batched_tokens", "max_model_len")


@dataclass(frozen=True)
class Asked:
    """What ``bench up`` is asked for. ``model``: TINY, a folder, or a name of the hub. ``device``: gpu, cpu,
    or auto (a GPU where there is one). ``limits``: names of LIMITS; ``kv_blocks`` have 16 tokens.
    ``port`` 0: free ones; else the first of as many as there are replicas. ``python``: of the environment
    that has the engine. ``served``: what requests call the model; "": its own name."""

    engine: str = "vllm"
    how: str = "process"
    model: str = TINY
    served: str = ""
    device: str = "auto"
    replicas: int = 1
    port: int = 0
    tensor_parallel: int = 1
    limits: Mapping[str, int] = field(default_factory=dict)
    control: bool = False
    hf_cache: Path | None = None
    python: Path | None = None
    flags: tuple[str, ...] = ()
    container: ContainerOptions = field(default_factory=ContainerOptions)

    def __post_init__(self) -> None:
        for what, value, known in (
            ("engine", self.engine, ENGINES), ("how", self.how, HOWS), ("device", self.device, DEVICES),
        ):  # fmt: skip
            if value not in known:
                raise ValueError(f"{what} must be one of {', '.join(known)}, got {value!r}")
        if not 1 <= self.replicas <= 1024 or self.tensor_parallel < 1:
            raise ValueError("replicas must be from 1 to 1,024 and tensor parallelism at least 1")
        if self.hf_cache is not None and not self.hf_cache.is_dir():
            raise ValueError(f"hf-cache: there is no folder {self.hf_cache}")
        if self.port and not 1 <= self.port <= 65_536 - self.replicas:
            raise ValueError(f"port must be 0 or from 1 to {65_536 - self.replicas}, got {self.port}")

    @property
    def gpu(self) -> bool:
        """Whether a GPU serves."""
        if self.how == "docker" or self.engine == "sglang":  # their images and SGLang need one
            return self.device != "cpu"
        return self.device == "gpu" or (self.device == "auto" and has_gpu())


def has_gpu() -> bool:
    """Whether NVIDIA's driver has a device here."""
    return Path("/dev/nvidiactl").exists()


def engines(asked: Asked, spec: SystemSpec, folder: Path, fleet: str) -> list[Any]:
    """Servers that outlive us, not yet begun; ``folder``: for the model and a folder of logs each.

    Raises ValueError for what cannot be served, MissingCapability for a system the engine cannot host.
    """
    recipe = vllm(asked, spec, folder) if asked.engine == "vllm" else sglang(asked, spec)
    make = _containers(asked, fleet) if asked.how == "docker" else _processes(asked)
    return [make(recipe, folder, i) for i in range(asked.replicas)]


def vllm(asked: Asked, spec: SystemSpec, folder: Path) -> ServerOptions:
    """vLLM with the system's policy inside; options of the system that vLLM has are set.

    Raises MissingCapability if it cannot host the system.
    """
    check(spec, "vllm")
    options = engine_options(spec, "vllm")
    model, served = _model(asked, folder)
    base = ServerOptions.on_gpu(model, served) if asked.gpu else ServerOptions(model, served)
    if not asked.gpu and asked.model != TINY:
        base = replace(base, dtype="", kv_cache_memory="", kv_blocks=0, max_model_len=0)
    return replace(
        base, scheduler=spec.scheduler, knobs=dict(spec.scheduler_knobs), preemption=options["preemption"],
        prefix_cache=bool(spec.engine_option("prefix_cache")), tensor_parallel=asked.tensor_parallel,
        hf_cache=asked.hf_cache, control=asked.control, flags=asked.flags, **_limits(asked, base),
    )  # fmt: skip


def _limits(asked: Asked, base: ServerOptions) -> dict[str, Any]:
    """The engine's own: its KV blocks may be larger than ours. Raises ValueError if ours do not fill them."""
    found: dict[str, Any] = dict(asked.limits)
    if "kv_blocks" in found:
        found["block_size"] = size = base.block_size or BLOCK
        if found["kv_blocks"] * BLOCK % size:
            raise ValueError(
                f"engine.kv_blocks must be a multiple of {size // BLOCK}: ours have {BLOCK} tokens, "
                f"vLLM's on a CPU have {size}; got {found['kv_blocks']}"
            )
        found["kv_blocks"] = found["kv_blocks"] * BLOCK // size
    return found


def _gpus_of(asked: Asked) -> list[str]:
    """Of each replica; all of them where none was named and there is one."""
    return split_gpus(
        asked.container.gpus or ("all" if asked.gpu else ""), asked.replicas, asked.tensor_parallel
    )


def sglang(asked: Asked, spec: SystemSpec) -> SglangOptions:
    """SGLang with the scheduler of its own that the system names. Raises ValueError if it has none."""
    if spec.scheduler not in _SGLANG:
        raise ValueError(
            f"SGLang schedules by itself: of this catalog's schedulers it has {', '.join(_SGLANG)}; "
            f"{spec.name} has {spec.scheduler}"
        )
    if asked.model == TINY:
        raise ValueError("SGLang needs a GPU and a real model: name one with --model")
    model, served = _model(asked, Path())
    limits = dict(asked.limits)
    blocks = limits.get("kv_blocks", 0)
    return SglangOptions(
        model, served, spec.scheduler, context_length=limits.get("max_model_len", 0),
        max_running_requests=limits.get("max_num_seqs", 0), max_total_tokens=BLOCK * blocks,
        chunked_prefill_size=limits.get("max_num_batched_tokens", 0),
        tensor_parallel=asked.tensor_parallel, hf_cache=asked.hf_cache, flags=asked.flags,
    )  # fmt: skip


def _model(asked: Asked, folder: Path) -> tuple[Path | str, str]:
    """(folder or the hub's name, what requests call it). Raises ValueError."""
    if asked.model == TINY:
        return write(folder / "model").resolve(), asked.served or TINY
    path = Path(asked.model)
    if path.is_dir():
        if not (path / "config.json").is_file():
            raise ValueError(f"model: {path} has no config.json, so it is no model's folder")
        return path.resolve(), asked.served or path.resolve().name
    if path.is_absolute() or asked.model.startswith((".", "~")) or asked.model.count("/") != 1:
        raise ValueError(
            f"model: {asked.model!r} is neither a folder here nor ORGANISATION/MODEL of the hub, nor {TINY}"
        )
    return asked.model, asked.served or asked.model


def _processes(asked: Asked) -> Callable[[Any, Path, int], Any]:
    gpus = _gpus_of(asked)

    def make(recipe: Any, folder: Path, i: int) -> Any:
        extra = {"CUDA_VISIBLE_DEVICES": gpus[i]} if gpus[i] and gpus[i] != "all" else {}
        place: dict[str, Any] = {
            "python": asked.python, "name": f"{asked.engine}{i}", "port": asked.port and asked.port + i,
            "outlives": True, "extra": extra,
        }  # fmt: skip
        if isinstance(recipe, ServerOptions):
            return VllmServer(replace(recipe, engine=i), folder / f"engine{i}", **place)
        return SglangServer(recipe, folder / f"engine{i}", **place)

    return make


def _containers(asked: Asked, fleet: str) -> Callable[[Any, Path, int], Any]:
    gpus = _gpus_of(asked)
    if asked.python is not None:
        raise EngineUnavailable(
            "a container has its own Python: leave the one you named out, or take processes"
        )

    def make(recipe: Any, folder: Path, i: int) -> Any:
        own = replace(asked.container, gpus=gpus[i], port=asked.port and asked.port + i, fleet=fleet)
        mine = replace(recipe, engine=i) if isinstance(recipe, ServerOptions) else recipe
        return ContainerServer(mine, folder / f"engine{i}", own, name=f"{asked.engine}{i}")

    return make

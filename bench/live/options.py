"""How live engines are run: the knobs ``live.*``, and the limits where none are given."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from bench.config import LIVE, RunConfig
from bench.errors import MissingError, UsageError, unknown

ENGINE = "vllm"
TINY = "tiny-llama"
"""Model where there is no GPU: random weights, written in a second (``systems.vllm_host.tiny``)."""
BLOCK_SIZE = {"cpu": 32, "gpu": 16}
"""Tokens in a KV block of the engine: vLLM's CPU back end takes multiples of 32 only. Ours have 16."""
LIMITS: Mapping[str, Mapping[str, int]] = {
    "cpu": {"kv_blocks": 256, "max_num_seqs": 4, "max_num_batched_tokens": 512, "max_model_len": 4096},
    "gpu": {"max_num_seqs": 256, "max_num_batched_tokens": 2048, "max_model_len": 16_384},
}
"""On a CPU: places and KV (4 096 tokens) of a size that programs scaled by 1/16 fill. ``kv_blocks`` of 16
tokens; on a GPU it has no default: how much memory is free is not known before the engine runs."""
LOAD = 1.0
"""Arrival rate without --rate: this share of the capacity that a pilot finds (``bench.live.pilot``)."""
HOWS = ("process", "docker")
FRONTS = ("gateway", "none")
DRIVERS = ("asyncio", "locust")
CLIENTS = ("stream", "whole")


@dataclass(frozen=True)
class LiveOptions:
    """The knobs. ``how``: process or docker. ``python``: of the vLLM environment (None: as for
    vllm-virtual). ``attach``: URLs of engines that run already. ``front``: gateway, or none: one engine
    is then called directly. ``driver``: asyncio (the measuring one) or locust
    (docs/locust.md). ``client``, of asyncio: stream (times to first tokens) or whole replies. ``load``: see
    ``LOAD``. ``tool_parser``: vLLM's name of what reads tool calls in the model's replies; "": nothing
    does, and vLLM refuses calls that have tools."""

    how: str = "process"
    python: Path | None = None
    attach: tuple[str, ...] = ()
    front: str = "gateway"
    driver: str = "asyncio"
    client: str = "stream"
    load: float = LOAD
    tool_parser: str = ""

    @classmethod
    def of(cls, config: RunConfig) -> LiveOptions:
        """From a run's knobs. Raises UsageError naming the knob."""
        said = {k.partition(".")[2]: v for k, v in config.knobs.items() if k in LIVE}
        found = cls(
            how=_one_of("how", said, HOWS),
            python=Path(said["python"]) if "python" in said else None,
            attach=tuple(url.strip().rstrip("/") for url in said.get("attach", "").split(",") if url.strip()),
            front=_one_of("front", said, FRONTS),
            driver=_one_of("driver", said, DRIVERS),
            client=_one_of("client", said, CLIENTS),
            load=_share(said.get("load", str(LOAD))),
            tool_parser=said.get("tool_parser", ""),
        )
        found.check(config)
        return found

    def check(self, config: RunConfig) -> None:
        """Raises UsageError for knobs that contradict each other."""
        for url in self.attach:
            if not url.startswith(("http://", "https://")):
                raise UsageError(f"live.attach takes URLs such as http://127.0.0.1:8000, got {url!r}")
        if self.attach and self.tool_parser:
            raise UsageError(
                "live.tool_parser is for engines that we start; those of live.attach run already"
            )
        if not re.fullmatch(r"(\w[\w.-]*)?", self.tool_parser, re.ASCII):
            raise UsageError(f"live.tool_parser takes a name such as hermes, got {self.tool_parser!r}")
        if self.attach and config.replicas not in (1, len(self.attach)):
            raise UsageError(
                f"live.attach names {len(self.attach)} engines, --replicas says {config.replicas}: leave "
                "one out"
            )
        if self.driver != "asyncio" and config.concurrency is not None:
            raise UsageError(f"live.driver={self.driver} takes programs as they arrive: give --rate")
        if self.front == "none" and max(config.replicas, len(self.attach)) > 1:
            raise UsageError("live.front=none calls one engine directly; several need the gateway")

    def engines(self, config: RunConfig) -> int:
        """How many engines serve."""
        return len(self.attach) or config.replicas


def _one_of(name: str, said: Mapping[str, str], known: tuple[str, ...]) -> str:
    value = said.get(name, known[0])
    if value not in known:
        raise unknown(f"live.{name}", value, known)
    return value


def _share(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0.05 <= value <= 10.0:
        raise UsageError(f"live.load must be a share of the capacity between 0.05 and 10, got {text!r}")
    return value


def device() -> str:
    """gpu where NVIDIA's driver answers to its name, else cpu."""
    return "gpu" if shutil.which("nvidia-smi") and Path("/dev/nvidiactl").exists() else "cpu"


def with_defaults(config: RunConfig, kind: str) -> RunConfig:
    """The run with every limit said, so that its command line has them. ``kind``: cpu or gpu.

    Raises UsageError for what no live engine does, or what must be said on a GPU.
    """
    limits = {f"engine.{name}": str(value) for name, value in LIMITS[kind].items()}
    config = replace(config, knobs={**limits, **config.knobs})
    blocks = config.limits().get("kv_blocks")
    if blocks is None:
        raise UsageError(
            "on a GPU say how much KV an engine has: --knob engine.kv_blocks=N (blocks of 16 tokens)"
        )
    tokens = BLOCK_SIZE[kind]
    if 16 * blocks % tokens:
        raise UsageError(
            f"engine.kv_blocks must be a multiple of {tokens // 16}, got {blocks}: ours have 16 tokens, "
            f"vLLM's on a {kind.upper()} have {tokens}"
        )
    return config


def check_model(config: RunConfig, kind: str) -> None:
    """Raises MissingError where the model cannot be served here."""
    if kind == "cpu" and config.model != TINY and not Path(config.model).is_dir():
        raise MissingError(
            f"there is no GPU here to serve {config.model}: leave --model out for {TINY}, or name a "
            "model's folder"
        )

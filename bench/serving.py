"""What a system and a model make of an engine: its limits and options, and what moving KV costs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from bench.config import RunConfig
from bench.errors import MissingError
from systems.capabilities import EngineOptions, Fallback, MissingCapability, check, engine_options
from systems.catalog import SystemSpec
from systems.latency.transfer import Transfer, host_blocks, transfer_for
from vocabulary import EngineConfig

UNLIMITED = 1 << 40
"""Host blocks where moving is free: more than any run holds."""


class Room(Protocol):
    """What a model leaves to an engine: usable 16-token KV blocks, and its longest sequence in tokens."""

    @property
    def kv_blocks(self) -> int:
        """Usable 16-token blocks."""

    @property
    def max_model_len(self) -> int:
        """Tokens."""


@dataclass(frozen=True)
class Serving:
    """``transfer`` is None where nothing moves, or moving is free; ``fallbacks`` are part of the badge."""

    engine: EngineConfig
    transfer: Transfer | None
    fallbacks: tuple[Fallback, ...]

    @property
    def words(self) -> str:
        """What a result's badge says of options that are no vLLM V1 default; empty if there is none."""
        engine = self.engine
        words = [] if engine.prefix_cache else ["prefix cache off"]
        words += [] if engine.chunked_prefill else ["chunked prefill off"]
        words += [f"scheduling every {engine.schedule_every} steps"] if engine.schedule_every > 1 else []
        if engine.preemption == "swap":
            cost = "free" if self.transfer is None else self.transfer.describe()
            words.append(f"preemption by swap ({cost}; {_room(engine.host_blocks)} host blocks)")
        elif engine.preemption == "hold":
            words.append("preempted calls hold their KV")
        words += [f"host tier of {engine.host_blocks} blocks"] if engine.host_tier else []
        return "; ".join(words + [f"FALLBACK {fallback}" for fallback in self.fallbacks])


def _room(blocks: int) -> str:
    return "unlimited" if blocks >= UNLIMITED else str(blocks)


def serving(config: RunConfig, spec: SystemSpec, room: Room) -> Serving:
    """Raises MissingError if the engine lacks something, UnknownTable or ValueError for bad values."""
    try:
        options = engine_options(spec, config.engine)
        fallbacks = tuple(check(spec, config.engine))
    except MissingCapability as error:
        raise MissingError(str(error)) from None
    blocks = max(1, round(room.kv_blocks * config.factors().get("kv_scale", 1.0)))
    limits: dict[str, Any] = {"kv_blocks": blocks, "max_model_len": room.max_model_len}
    moves = options["preemption"] == "swap" or options["host_tier"]
    engine = EngineConfig(
        **limits | config.limits(),
        prefix_cache=bool(spec.engine_option("prefix_cache")),
        chunked_prefill=options["chunked_prefill"],
        schedule_every=options["schedule_every"],
        preemption=options["preemption"],
        host_blocks=_host_blocks(config, options) if moves else 0,
        host_tier=options["host_tier"],
        retains=spec.keeps,
        record_decisions=config.records_decisions(),
    )
    return Serving(engine, _transfer(config, options) if moves else None, fallbacks)


def _host_blocks(config: RunConfig, options: EngineOptions) -> int:
    return UNLIMITED if options["free"] else host_blocks(config.model, gigabytes=options["host_gb"])


def _transfer(config: RunConfig, options: EngineOptions) -> Transfer | None:
    """None where moving is free: by the system, or by a scale of 0."""
    if options["free"] or options["swap_scale"] == 0:
        return None
    return transfer_for(config.model, config.gpu, options["batched"], options["swap_scale"])

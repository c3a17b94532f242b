"""What it costs to move KV blocks between GPU and host memory over PCIe.

A 16-token block is 2 (K, V) x layers pieces of memory. Copied one by one
(vLLM V0) each pays a set-up time; a batched transfer gathers all blocks first
and pays it once. Our estimate; each number is a knob.
"""

from __future__ import annotations

from dataclasses import dataclass

from systems.latency.facts import gpu as gpu_of
from systems.latency.facts import model_and_tp
from vocabulary import on_grid

SETUP_S = 5e-6
"""Launching one copy."""
HOST_GIGABYTES = 1200.0
"""Host memory for KV of one engine, in 10**9 bytes."""


@dataclass(frozen=True)
class Transfer:
    """Blocks of ``bytes_per_block`` over each GPU's own PCIe link, in ``copies_per_block`` pieces.

    ``setup_s`` seconds per copy, ``bandwidth`` bytes/s, ``batched``: one gathered copy
    per transfer; ``scale`` multiplies the time. With tensor parallelism every GPU
    moves its share at once: bytes are per GPU. Raises ValueError for what cannot be.
    """

    bytes_per_block: int
    copies_per_block: int
    setup_s: float = SETUP_S
    bandwidth: float = 25e9
    batched: bool = False
    scale: float = 1.0

    def __post_init__(self) -> None:
        for name in ("bytes_per_block", "copies_per_block", "bandwidth", "scale"):
            if not 0 < getattr(self, name) < float("inf"):
                raise ValueError(f"{name} of a transfer must be above 0, got {getattr(self, name)!r}")
        if not 0 <= self.setup_s < float("inf"):
            raise ValueError(f"setup_s of a transfer must not be negative, got {self.setup_s!r}")

    def seconds(self, blocks: int) -> float:
        """Seconds (on the grid) to move ``blocks`` blocks one way; 0 for none. Raises ValueError below 0."""
        if blocks < 0:
            raise ValueError(f"cannot move {blocks} blocks")
        copies = min(blocks, 1) if self.batched else blocks * self.copies_per_block
        return on_grid((copies * self.setup_s + blocks * self.bytes_per_block / self.bandwidth) * self.scale)

    def describe(self) -> str:
        """The cost in words; the set-up of a batched transfer comes once on top of its blocks."""
        way = "batched" if self.batched else f"{self.copies_per_block} copies per block"
        block = self.seconds(1) - (self.setup_s * self.scale if self.batched else 0.0)
        scaled = "" if self.scale == 1.0 else f" (x {self.scale:g} included)"
        return (
            f"PCIe {self.bandwidth / 1e9:g} GB/s, {self.setup_s * 1e6:g} us per copy, {way}: "
            f"{block * 1e3:.3f} ms per block{scaled}"
        )


def transfer_for(model: str, gpu: str, batched: bool, scale: float = 1.0) -> Transfer:
    """Moving KV of ``model`` ("llama-3.1-70b:tp4") on ``gpu``.

    Raises UnknownTable for an unknown name, ValueError if the model cannot be split that way.
    """
    facts, tp = model_and_tp(model)
    return Transfer(
        facts.kv_block_bytes(tp), 2 * facts.layers, bandwidth=gpu_of(gpu).pcie, batched=batched, scale=scale
    )


def host_blocks(model: str, tp: int | None = None, gigabytes: float = HOST_GIGABYTES) -> int:
    """16-token KV blocks of ``model`` that ``gigabytes`` (10**9 bytes) of host memory hold.

    ``tp`` None: the model's own. Raises UnknownTable, or ValueError for a negative size or
    if the model cannot be split over so many GPUs.
    """
    facts, own = model_and_tp(model)
    if not 0 <= gigabytes < float("inf"):
        raise ValueError(f"host memory must not be negative, got {gigabytes!r} GB")
    gpus = own if tp is None else tp
    facts.check_split(gpus)
    return int(gigabytes * 1e9 // (facts.kv_block_bytes(gpus) * gpus))

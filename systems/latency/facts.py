"""What models and GPUs are made of: ``models.toml`` and ``gpus.toml`` beside this file.

From these follow the roofline, the KV blocks of a model without a table, and
the cost of moving KV between GPU and host.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any

from vocabulary import BLOCK

_HERE = Path(__file__).parent
_NODE = 8  # GPUs that NVLink connects
_PROFILED_TOKENS = 8192  # vLLM sizes its activations by a server's default token budget
_MEMORY_FRACTION = 0.9  # vLLM's gpu_memory_utilization


class UnknownTable(LookupError):
    """No step times for this model and GPU; the message names the nearest that exist."""


@dataclass(frozen=True)
class ModelFacts:
    """A decoder-only transformer, dense or a mixture of experts; ``models.toml`` says what each field is."""

    name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    gated: bool
    vocab: int
    tied: bool
    all_reduces: int
    dtype_bytes: int
    trained_len: int
    max_model_len: int
    tp: int
    source: str
    matrix_bytes: int = 2
    kv_bytes: int = 2
    experts: int = 0
    top_k: int = 0
    moe_intermediate: int = 0
    shared_experts: int = 0
    dense_layers: int = 0

    @property
    def kind(self) -> str:
        """Whose measured kernels say how far a roofline of it is off: bf16, fp8, or MoE in either."""
        number = "fp8" if self.matrix_bytes == 1 else "bf16"
        return f"MoE {number}" if self.experts else number

    @property
    def engine_band(self) -> tuple[float, float]:
        """(low, high) of a real engine's times over its kernels' while no run is fitted (docs/latency.md)."""
        return (0.67, 1.7) if self.experts else (0.85, 1.15)

    @property
    def moe_layers(self) -> int:
        """Layers whose MLP is a choice of experts."""
        return self.layers - self.dense_layers if self.experts else 0

    @property
    def expert_parameters(self) -> int:
        """Parameters of one expert of one layer."""
        return (3 if self.gated else 2) * self.hidden * self.moe_intermediate

    @property
    def common_parameters(self) -> int:
        """Parameters of all layers that every token passes: QKV, output, MLP or router and shared experts."""
        qkv = self.hidden * (self.heads + 2 * self.kv_heads) * self.head_dim
        output = self.heads * self.head_dim * self.hidden
        mlp = (3 if self.gated else 2) * self.hidden * self.intermediate
        chosen = self.hidden * self.experts + self.shared_experts * self.expert_parameters
        dense = self.layers - self.moe_layers
        return self.layers * (qkv + output) + dense * mlp + self.moe_layers * chosen

    @property
    def routed_parameters(self) -> int:
        """Parameters of all layers' routed experts."""
        return self.moe_layers * self.experts * self.expert_parameters

    @property
    def layer_parameters(self) -> int:
        """Parameters of all layers' matrices."""
        return self.common_parameters + self.routed_parameters

    @property
    def active_parameters(self) -> int:
        """Parameters of all layers' matrices that one token passes."""
        return self.common_parameters + self.moe_layers * self.top_k * self.expert_parameters

    def experts_touched(self, tokens: int) -> float:
        """Expected share of a layer's experts that ``tokens`` tokens choose, evenly and each for itself."""
        return 1.0 - (1.0 - self.top_k / self.experts) ** tokens if self.experts else 0.0

    @property
    def head_parameters(self) -> int:
        """Parameters of the LM head."""
        return self.vocab * self.hidden

    @property
    def weight_bytes(self) -> int:
        """Bytes of all weights; norms, biases and scales are left out."""
        embeddings = self.head_parameters * (1 if self.tied else 2)
        return self.layer_parameters * self.matrix_bytes + embeddings * self.dtype_bytes

    def check_split(self, tp: int) -> None:
        """Raises ValueError unless every one of ``tp`` GPUs of a node gets as many heads."""
        possible = [n for n in range(1, _NODE + 1) if self._splits(n)]
        if tp not in possible:
            listed = ", ".join(map(str, possible))
            raise ValueError(f"{self.name} cannot be split over {tp} GPUs; possible: {listed}")

    def _splits(self, n: int) -> bool:
        """Every GPU gets as many heads, and as many KV heads or a copy of one."""
        return self.heads % n == 0 and 0 in (self.kv_heads % n, n % self.kv_heads)

    def kv_token_bytes(self, tp: int) -> int:
        """Bytes of one token's K and V on each of ``tp`` GPUs; GPUs beyond the KV heads hold copies."""
        return 2 * self.layers * max(self.kv_heads // tp, 1) * self.head_dim * self.kv_bytes

    def kv_block_bytes(self, tp: int) -> int:
        """Bytes of a 16-token KV block on each of ``tp`` GPUs."""
        return self.kv_token_bytes(tp) * BLOCK

    def activation_bytes(self, tp: int) -> int:
        """Bytes per GPU of the widest layer's activations in vLLM's profiling run.

        With experts the library's allowance: 44, 26, 20, 20 times the hidden size on 1, 2, 4, 8 GPUs.
        """
        wide = 2 * self.hidden + (3 if self.gated else 2) * self.intermediate // tp
        if self.experts:
            wide = max(20, 8 + 36 // tp) * self.hidden
        return _PROFILED_TOKENS * self.dtype_bytes * wide


@dataclass(frozen=True)
class GpuFacts:
    """One GPU; ``gpus.toml`` says what each field is. Bytes, bytes/s, 1/s."""

    name: str
    memory: int
    bandwidth: float
    flops: float
    link: float
    pcie: float
    runtime: int
    comm: int
    source: str
    flops_fp8: float = 0.0

    def matrix_flops(self, model: ModelFacts) -> float:
        """Dense peak for the model's layers, 1/s."""
        return self.flops_fp8 if model.matrix_bytes == 1 else self.flops

    def check_runs(self, model: ModelFacts) -> None:
        """Raises ValueError if it has no matrix units for the model's weights."""
        if model.matrix_bytes == 1 and not self.flops_fp8:
            raise ValueError(
                f"{model.name} does not run on {self.name}: the GPU has no FP8 matrix units "
                "(the weight-only kernels vLLM would fall back to are not modelled)"
            )


def kv_blocks(model: ModelFacts, gpu: GpuFacts, tp: int) -> int:
    """KV blocks beside the weights in 0.9 of the memory of ``tp`` GPUs, as vLLM would find them.

    Raises ValueError if the model cannot be split that way, cannot run there or does not fit.
    """
    model.check_split(tp)
    gpu.check_runs(model)
    free = gpu.memory * _MEMORY_FRACTION - model.weight_bytes / tp - model.activation_bytes(tp)
    free -= gpu.runtime + (gpu.comm if tp > 1 else 0)
    blocks = int(free // model.kv_block_bytes(tp))
    if blocks < 1:
        weights, memory = model.weight_bytes / tp / 1e9, gpu.memory / 1e9
        hint = f"use more GPUs ({model.name}:tpN)" if tp < _NODE else "a node has no more of them"
        raise ValueError(
            f"{model.name} does not fit on {tp} x {gpu.name}: weights take {weights:.0f} of {memory:.0f} GB "
            f"per GPU; {hint}"
        )
    return blocks


def split_name(name: str) -> tuple[str, int | None]:
    """("llama-3.1-70b", 4) of "llama-3.1-70b:tp4"; None where the name has no ":tpN".

    Raises UnknownTable if something else follows the colon.
    """
    model, colon, suffix = name.partition(":")
    if not colon:
        return model, None
    number = suffix.removeprefix("tp")
    if not (suffix.startswith("tp") and number.isascii() and number.isdigit() and int(number) > 0):
        raise UnknownTable(
            f"model {name!r}: ':tpN' (GPUs of one engine, such as :tp4) may follow, not {suffix!r}"
        )
    return model, int(number)


@cache
def model_facts() -> Mapping[str, ModelFacts]:
    """Every model, by name."""
    return {name: ModelFacts(name, **fields) for name, fields in _read("models.toml").items()}


@cache
def gpu_facts() -> Mapping[str, GpuFacts]:
    """Every GPU, by name."""
    return {name: GpuFacts(name, **fields) for name, fields in _read("gpus.toml").items()}


def model_and_tp(name: str) -> tuple[ModelFacts, int]:
    """The model and its GPUs per engine, from "llama-3.1-70b" or "llama-3.1-70b:tp4".

    Raises UnknownTable, or ValueError if the model cannot be split over so many.
    """
    model, tp = split_name(name)
    facts = model_facts().get(model)
    if facts is None:
        raise UnknownTable(f"unknown model, {nearest(model, list(model_facts()))} (got {name!r})")
    tp = facts.tp if tp is None else tp
    facts.check_split(tp)
    return facts, tp


def same_model(one: str, other: str) -> bool:
    """Whether two names mean one model at one size: ":tpN" may be said or be the model's own.

    Names of unknown models must be equal.
    """
    return _resolved(one) == _resolved(other)


def _resolved(name: str) -> tuple[str, int | None]:
    try:
        facts, tp = model_and_tp(name)
    except (UnknownTable, ValueError):
        return name, None
    return facts.name, tp


def full_name(model: str, tp: int) -> str:
    """A model without ":tpN" on ``tp`` GPUs, as calibrations name it: nothing follows where one GPU is all
    that the name can mean."""
    facts = model_facts().get(model)
    return model if tp == 1 and (facts is None or facts.tp == 1) else f"{model}:tp{tp}"


def gpus_of(name: str) -> int:
    """GPUs per engine that a name means; 1 for an unknown model that does not say."""
    _, tp = _resolved(name)
    if tp is not None:
        return tp
    try:
        return split_name(name)[1] or 1
    except UnknownTable:
        return 1


def gpu(name: str) -> GpuFacts:
    """The GPU of that name. Raises UnknownTable."""
    facts = gpu_facts().get(name)
    if facts is None:
        raise UnknownTable(f"unknown GPU, {nearest(name, list(gpu_facts()))} (got {name!r})")
    return facts


def nearest(name: str, known: list[str]) -> str:
    """What may have been meant, in words."""
    return "nearest: " + ", ".join(get_close_matches(name, known, n=3, cutoff=0.4) or sorted(known))


def _read(file: str) -> dict[str, dict[str, Any]]:
    return tomllib.loads((_HERE / file).read_text(encoding="utf-8"))

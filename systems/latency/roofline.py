"""Step times of a model nobody measured: what arithmetic and memory allow at best, times a factor.

Each part of a step takes the longer of its arithmetic at the GPU's peak and
its bytes at the memory's bandwidth; an all-reduce takes its bytes at the
link's. Real kernels are slower by the ratios docs/latency.md lists for every
table; the factor is the geometric mean of their range, for each kind of model.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from systems.latency.facts import GpuFacts, ModelFacts, kv_blocks
from systems.latency.model import band
from vocabulary import INF, on_grid

MEASURED = {
    "bf16": (1.14, 2.44),
    "fp8": (1.43, 3.72),
    "MoE bf16": (1.05, 3.98),
    "MoE fp8": (2.2, 5.3),
}
"""Least and largest ratio of the library's kernels to the bare roofline at the reference points of all its
tables, by ``ModelFacts.kind``."""

EXPERT_LAYER_S = 7e-5
"""Least time of a layer with experts: routing, sorting and small GEMMs are launches, however few the tokens.
No measured step of such a model is shorter (docs/latency.md)."""


def factor_for(model: ModelFacts) -> float:
    """On every term of a roofline: the geometric mean of the model's kind in ``MEASURED``."""
    return math.sqrt(math.prod(MEASURED[model.kind]))


def roofline_uncertainty(model: ModelFacts, factor: float | None = None) -> tuple[float, float]:
    """(low, high): by which factor a true step time may differ from the model's."""
    low, high = MEASURED[model.kind]
    factor = factor_for(model) if factor is None else factor
    return low / factor, high / factor


class RooflineLatency:
    """``model`` on ``tp`` GPUs; ``factor`` (of its kind unless given) times the bare roofline.

    Seconds on the time grid. Raises ValueError if the model does not fit, cannot be split or cannot run.
    """

    def __init__(self, model: ModelFacts, gpu: GpuFacts, tp: int, factor: float | None = None) -> None:
        factor = factor_for(model) if factor is None else factor
        self.model, self.gpu, self.tp = model.name, gpu.name, tp
        self.name = f"{model.name}{f':tp{tp}' if tp > 1 else ''}/{gpu.name}"
        self.kv_blocks = kv_blocks(model, gpu, tp)
        self.max_model_len = model.max_model_len
        self.uncertainty = roofline_uncertainty(model, factor)
        self.provenance: dict[str, Any] = {
            "package": "roofline",
            "kernels": f"not measured, {band(self.uncertainty)}",
            "factor": factor,
            "model": asdict(model),
            "gpu": asdict(gpu),
        }
        self.digest = hashlib.sha256(json.dumps([self.provenance, tp]).encode()).hexdigest()
        self._engine_band = model.engine_band
        self._lifted = model.trained_len if model.trained_len < model.max_model_len else None
        self._set_costs(model, gpu, tp, factor)

    def _set_costs(self, model: ModelFacts, gpu: GpuFacts, tp: int, factor: float) -> None:
        per_flop, per_byte = factor / gpu.flops / tp, factor / gpu.bandwidth / tp
        ring = 2 * (tp - 1) / tp * factor / gpu.link if tp > 1 else 0.0  # seconds per byte of an all-reduce
        reduced = model.layers * model.all_reduces * model.hidden * model.dtype_bytes
        matrix_flop, matrix_byte = factor / gpu.matrix_flops(model) / tp, model.matrix_bytes * per_byte
        size = model.common_parameters
        self._layers = _Gemm(2 * size * matrix_flop, size * matrix_byte, reduced * ring)
        if model.experts:
            chosen = model.active_parameters - size
            experts = _Gemm(2 * chosen * matrix_flop, model.routed_parameters * matrix_byte)
            floor = model.moe_layers * EXPERT_LAYER_S * factor
            self._layers = _Experts(self._layers, experts, model.experts_touched, floor)
        size = model.head_parameters
        self._head = _Gemm(2 * size * per_flop, size * model.dtype_bytes * per_byte)
        self._pair = 4 * model.layers * model.heads * model.head_dim * per_flop
        self._read = model.kv_token_bytes(tp) * factor / gpu.bandwidth
        self._slope = max(self._pair, self._read)  # decode attention, per token of context

    def step(self, prefills: Sequence[tuple[int, int]], n_decode: int, sum_ctx: int) -> float:
        """Seconds of one step; see ``LatencyModel.step``. Raises ValueError if the step is empty."""
        if not prefills:
            a, b, _ = self.decode_line(n_decode, sum_ctx)
            return on_grid(a + b * sum_ctx)
        seconds = self._layers[n_decode + sum(new for new, _ in prefills)]
        seconds += self._head[n_decode + len(prefills)]
        if n_decode:
            seconds += on_grid(self._slope * sum_ctx)
        return on_grid(seconds + sum(on_grid(self._prefill(new, cached)) for new, cached in prefills))

    def decode_line(self, n_decode: int, sum_ctx: int) -> tuple[float, float, float]:  # noqa: ARG002
        """(a, b, INF); see ``LatencyModel.decode_line``.

        Raises ValueError if ``n_decode`` is not positive.
        """
        if n_decode < 1:
            raise ValueError(f"a decode step needs at least one call, got {n_decode}")
        return self._layers[n_decode] + self._head[n_decode], self._slope, INF

    def describe(self) -> str:
        """Where the step times come from, and how far off they may be."""
        kernels, engine = band(self.uncertainty), band(self._engine_band)
        text = f"roofline, no kernel measured: {kernels}, and not calibrated: {engine} on top"
        if self._lifted is None:
            return text
        return f"{text}; context limit of {self._lifted} tokens lifted to {self.max_model_len}"

    def _prefill(self, new: int, cached: int) -> float:
        """Attention of ``new`` tokens to ``cached`` ones and, causally, to each other."""
        return max(self._pair * new * (cached + (new + 1) / 2), self._read * (cached + new))


class _Gemm(dict[int, float]):
    """Matrices by tokens, on the time grid: arithmetic grows with the tokens, reading the weights does not.

    ``reduce``: seconds per token of what follows. Values are kept.
    """

    def __init__(self, per_token: float, weights: float, reduce: float = 0.0) -> None:
        super().__init__()
        self._per_token, self._weights, self._reduce = per_token, weights, reduce

    def __missing__(self, tokens: int) -> float:
        self[tokens] = seconds = on_grid(self.cost(tokens))
        return seconds

    def cost(self, tokens: int, read: float = 1.0) -> float:
        """Seconds where the share ``read`` of the weights is read."""
        return max(self._per_token * tokens, self._weights * read) + self._reduce * tokens


class _Experts(_Gemm):
    """Layers with experts: what all tokens pass, and the experts they touch; at least ``floor`` seconds."""

    def __init__(self, common: _Gemm, experts: _Gemm, touched: Callable[[int], float], floor: float) -> None:
        super().__init__(0.0, floor)
        self._common, self._experts, self._touched = common, experts, touched

    def cost(self, tokens: int, read: float = 1.0) -> float:
        """Seconds of all layers."""
        experts = self._experts.cost(tokens, self._touched(tokens) * read)
        return max(self._common.cost(tokens) + experts, self._weights)

"""Step times of a model nobody measured: what arithmetic and memory allow at best, times a factor.

Each part of a step takes the longer of its arithmetic at the GPU's peak and
its bytes at the memory's bandwidth; an all-reduce takes its bytes at the
link's. Real kernels are slower by the ratios docs/latency.md lists for every
table; the factor is the geometric mean of their range.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from systems.latency.facts import GpuFacts, ModelFacts, kv_blocks
from vocabulary import INF, on_grid

MEASURED = (1.14, 2.44)
"""Least and largest ratio of measured kernels to the bare roofline: reference points of all tables."""
FACTOR = math.sqrt(MEASURED[0] * MEASURED[1])
"""On every term: the geometric mean of ``MEASURED``, 1.67."""


def roofline_uncertainty(factor: float = FACTOR) -> tuple[float, float]:
    """(low, high): by which factor a true step time may differ from the model's."""
    return MEASURED[0] / factor, MEASURED[1] / factor


class RooflineLatency:
    """``model`` on ``tp`` GPUs; ``factor`` times the bare roofline. Seconds on the time grid.

    Raises ValueError if the model does not fit or cannot be split.
    """

    def __init__(self, model: ModelFacts, gpu: GpuFacts, tp: int, factor: float = FACTOR) -> None:
        self.model, self.gpu, self.tp = model.name, gpu.name, tp
        self.name = f"{model.name}{f':tp{tp}' if tp > 1 else ''}/{gpu.name}"
        self.kv_blocks = kv_blocks(model, gpu, tp)
        self.max_model_len = model.max_model_len
        self.uncertainty = roofline_uncertainty(factor)
        self.provenance: dict[str, Any] = {
            "package": "roofline",
            "kernels": f"not measured, {_band(self.uncertainty)}",
            "factor": factor,
            "model": asdict(model),
            "gpu": asdict(gpu),
        }
        self.digest = hashlib.sha256(json.dumps([self.provenance, tp]).encode()).hexdigest()
        self._lifted = model.trained_len if model.trained_len < model.max_model_len else None
        self._set_costs(model, gpu, tp, factor)

    def _set_costs(self, model: ModelFacts, gpu: GpuFacts, tp: int, factor: float) -> None:
        per_flop, per_byte = factor / gpu.flops / tp, factor / gpu.bandwidth / tp
        ring = 2 * (tp - 1) / tp * factor / gpu.link  # seconds per byte of an all-reduce
        reduced = model.layers * model.all_reduces * model.hidden * model.dtype_bytes
        size, matrix_flop = model.layer_parameters, factor / gpu.matrix_flops(model) / tp
        self._layers = _Gemm(2 * size * matrix_flop, size * model.matrix_bytes * per_byte, reduced * ring)
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
        text = f"roofline, no kernel measured: {_band(self.uncertainty)}, and not calibrated: +-15 % on top"
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
        self[tokens] = seconds = on_grid(max(self._per_token * tokens, self._weights) + self._reduce * tokens)
        return seconds


def _band(uncertainty: tuple[float, float]) -> str:
    return f"x{uncertainty[0]:.2f}..x{uncertainty[1]:.2f}"

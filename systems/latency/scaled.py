"""Step times varied: fitted to a real engine, or pushed to see what depends on them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from systems.protocols import LatencyModel
from vocabulary import INF, on_grid

SCALES = ("prefill", "decode", "overhead")
"""The parts of a step that a sensitivity varies, each by a factor of its own."""
LEAST, MOST = 0.1, 10.0
"""Bounds of those factors: beyond them it is another machine."""
_LARGEST_FLOOR_BATCH = 256


class ServedModel(LatencyModel, Protocol):
    """Step times of a model on a GPU, and what else an engine and a result's badge need.

    ``kv_blocks`` usable 16-token blocks, ``max_model_len`` in tokens, ``tp`` GPUs
    per engine; ``digest`` (hex) identifies the numbers; ``uncertainty`` is the
    (low, high) factor by which true times may differ.
    """

    model: str
    gpu: str
    tp: int
    kv_blocks: int
    max_model_len: int
    provenance: dict[str, Any]
    digest: str
    uncertainty: tuple[float, float]

    def describe(self) -> str:
        """Where the step times come from, and how far off they may be."""


class ScaledLatency:
    """``base`` with each part of a step varied, then ``scale`` times the whole plus ``extra_ms`` per step.

    A step of the base is *overhead* + *decode* + *prefill*: overhead is the base's
    smallest step (``floor_s``), which any step pays for reading the weights and
    launching kernels; decode is what its decoding calls add to that, prefill what
    its prefills add to both. With all factors 1 the base's times stay bit for bit.
    ``scale`` and ``extra_ms`` are what a calibration fits.
    Raises ValueError unless the factors are in 0.1..10, scale > 0 and extra_ms >= 0.
    """

    def __init__(
        self,
        base: LatencyModel,
        scale: float = 1.0,
        extra_ms: float = 0.0,
        *,
        prefill: float = 1.0,
        decode: float = 1.0,
        overhead: float = 1.0,
    ) -> None:
        if not (0.0 < scale < INF and 0.0 <= extra_ms < INF):
            raise ValueError(f"need scale > 0 and extra_ms >= 0, got {scale!r} and {extra_ms!r}")
        for name, factor in zip(SCALES, (prefill, decode, overhead), strict=True):
            if not LEAST <= factor <= MOST:
                raise ValueError(
                    f"latency.{name} must be a factor between {LEAST:g} and {MOST:g}, got {factor!r}"
                )
        self.base = base
        self.scale, self.extra_ms = scale, extra_ms
        self.prefill, self.decode, self.overhead = prefill, decode, overhead
        self.floor_s = floor(base)
        self.name = base.name + self.changes()
        self._shift = (overhead - decode) * self.floor_s * scale + extra_ms / 1e3

    def step(self, prefills: Sequence[tuple[int, int]], n_decode: int, sum_ctx: int) -> float:
        """Seconds of one step; see ``LatencyModel.step``."""
        if not prefills:
            a, b, _ = self.decode_line(n_decode, sum_ctx)
            return on_grid(a + b * sum_ctx)
        whole = self.base.step(prefills, n_decode, sum_ctx)
        without = self.base.step((), n_decode, sum_ctx) if n_decode else self.floor_s
        # where a table dips and the prefill costs less than nothing, there is nothing to scale
        factor = self.prefill if whole > without else 1.0
        return on_grid((whole * factor + without * (self.decode - factor)) * self.scale + self._shift)

    def decode_line(self, n_decode: int, sum_ctx: int) -> tuple[float, float, float]:
        """The base's line, scaled and shifted."""
        a, b, limit = self.base.decode_line(n_decode, sum_ctx)
        factor = self.decode * self.scale
        return a * factor + self._shift, b * factor, limit

    def changes(self) -> str:
        """The variations in words: " (prefill x 1.15)"; empty if there are none."""
        named = [(name, getattr(self, name)) for name in SCALES]
        words = [f"{name} x {factor:g}" for name, factor in (*named, ("all", self.scale)) if factor != 1.0]
        words += [f"+ {self.extra_ms:g} ms per step"] * (self.extra_ms > 0.0)
        return f" ({', '.join(words)})" if words else ""


class ScaledModel(ScaledLatency):
    """A served model with some of ``SCALES`` varied.

    Raises ValueError for an unknown name or a bad factor.
    """

    def __init__(self, base: ServedModel, scales: Mapping[str, float]) -> None:
        unknown = sorted(set(scales) - set(SCALES))
        if unknown:
            raise ValueError(f"no latency.{unknown[0]} to scale; there are: {', '.join(SCALES)}")
        super().__init__(base, **scales)
        self.model, self.gpu, self.tp = base.model, base.gpu, base.tp
        self.kv_blocks, self.max_model_len = base.kv_blocks, base.max_model_len
        self.uncertainty = base.uncertainty
        self.provenance: dict[str, Any] = {**base.provenance, "scales": dict(sorted(scales.items()))}
        factors = [getattr(self, name) for name in SCALES]
        self.digest = hashlib.sha256(json.dumps([base.digest, factors]).encode()).hexdigest()
        self._source = base.describe()

    def describe(self) -> str:
        """The base's source, and what was varied."""
        return self._source + self.changes()


def floor(model: LatencyModel) -> float:
    """The smallest step in seconds: one token per call, up to 256 calls, or one short prefill."""
    sizes = range(1, _LARGEST_FLOOR_BATCH + 1)
    decode = min(model.step((), n, n) for n in sizes)
    return min(decode, *(model.step([(n, 0)], 0, 0) for n in sizes))

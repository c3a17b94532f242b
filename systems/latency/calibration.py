"""What a recorded run of a real engine says about step times: a fit that runs can name.

Two kinds. ``scaled`` corrects a table or roofline by two numbers, ``scale`` and ``extra_ms`` per step;
``linear`` is a step model of its own, for an engine without a table (vLLM on a CPU, say).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from systems.latency.facts import full_name, gpus_of, nearest, same_model
from systems.latency.scaled import ScaledLatency, ServedModel
from vocabulary import INF, on_grid

FORMAT = 1
LEAST, MOST, MOST_MS = 0.01, 100.0, 1e5
"""Bounds of a scale, and of milliseconds: beyond them it is no step time."""
SHIPPED = Path(__file__).parent / "calibrations"
BAND = "p90"
"""The statistic of held-out errors that says within what absolute times lie."""
LEAST_BAND = 0.15
"""Half the width of the band where no ``BAND`` is recorded: a mean or median leaves half of the rows out."""
TERMS = ("step", "token", "row", "context", "pair")
"""Terms of a linear step: 1, tokens in the step, calls in it, tokens of context its decoding calls
read, and (query, key) pairs of its prefills; a coefficient is in ms per unit."""


@dataclass(frozen=True)
class HeldOut:
    """An error on data that the fit has not seen.

    ``metric``: TTFT, TPOT, E2E; ``statistic``: mean, median or p90 of the absolute relative errors,
    or the error of means; ``error``: a fraction, over ``n`` rows. Raises ValueError for one that is none."""

    metric: str
    statistic: str
    error: float
    n: int
    where: str = ""

    def __post_init__(self) -> None:
        if not 0.0 <= self.error < INF:
            raise ValueError(f"held_out: error of {self.metric} must be a fraction, got {self.error!r}")
        if self.n < 1:
            raise ValueError(f"held_out: n of {self.metric} must be at least 1, got {self.n!r}")

    def __str__(self) -> str:
        where = f", {self.where}" if self.where else ""
        return f"{self.metric} {self.error:.1%} {self.statistic} (n={self.n}{where})"


@dataclass(frozen=True)
class Calibration:
    """A fit, how good it is on data it has not seen, and where it comes from.

    ``model`` and ``gpu`` say what it may be used for, as ``--model`` and ``--gpu`` name them.
    ``kv_blocks``, ``max_model_len``: only of a linear one, which has no table to take them from.
    ``source``: file, sha256, engine and version, rows, part fitted on, command.
    Raises ValueError for numbers that no step time can have.
    """

    name: str
    kind: str
    model: str
    gpu: str
    scale: float = 1.0
    extra_ms: float = 0.0
    coefficients: Mapping[str, float] = field(default_factory=dict)
    kv_blocks: int = 0
    max_model_len: int = 0
    held_out: tuple[HeldOut, ...] = ()
    source: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.kind not in ("scaled", "linear"):
            raise ValueError(f"kind must be scaled or linear, got {self.kind!r}")
        if self.kind == "linear":
            self._check_linear()
            return
        if not (LEAST <= self.scale <= MOST and 0.0 <= self.extra_ms <= MOST_MS):
            raise ValueError(
                f"need a scale in {LEAST:g}..{MOST:g} and extra_ms in 0..{MOST_MS:g}, "
                f"got {self.scale!r} and {self.extra_ms!r}"
            )
        if self.coefficients or self.kv_blocks or self.max_model_len:
            raise ValueError("coefficients, kv_blocks and max_model_len are a linear calibration's")

    def _check_linear(self) -> None:
        unknown = sorted(set(self.coefficients) - set(TERMS))
        if unknown:
            raise ValueError(f"coefficients: no term {unknown[0]!r}; there are: {', '.join(TERMS)}")
        if not all(0.0 <= value <= MOST_MS for value in self.coefficients.values()) or not any(
            self.coefficients.get(term, 0.0) > 0.0 for term in ("step", "token", "row")
        ):
            raise ValueError(
                f"coefficients must be in 0..{MOST_MS:g} ms, and one of step, token, row above 0"
            )
        if self.kv_blocks < 1 or self.max_model_len < 1:
            raise ValueError("a linear calibration needs kv_blocks and max_model_len")

    @property
    def digest(self) -> str:
        """Of the numbers that decide a step time, and of the errors that results show with it (hex)."""
        numbers = [self.kind, self.scale, self.extra_ms, sorted(self.coefficients.items())]
        text = json.dumps([self.name, *numbers, [asdict(row) for row in self.held_out]])
        return hashlib.sha256(text.encode()).hexdigest()

    def describe(self) -> str:
        """Name, numbers and held-out error in one line."""
        fit = (
            f"scale {self.scale:.4g}, {self.extra_ms:+.3g} ms per step"
            if self.kind == "scaled"
            else "linear steps"
        )
        errors = "; ".join(map(str, self.held_out)) or "no held-out error"
        return f"calibration {self.name} ({fit}; held out: {errors})"

    def as_json(self) -> str:
        """What a calibration file holds."""
        return json.dumps({"format": FORMAT, **asdict(self)}, indent=1) + "\n"


def load_calibration(name: str) -> Calibration:
    """A shipped calibration by its name, or one in a JSON file (a name with / or .json).

    Raises OSError, or ValueError naming the file and the field.
    """
    path = Path(name)
    if "/" not in name and path.suffix != ".json":
        path = SHIPPED / f"{name}.json"
        if not path.is_file():
            raise ValueError(
                f"no calibration {name!r}, {nearest(name, calibrations())}; or give a .json file"
            )
    try:
        return parse(json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, TypeError) as error:
        raise ValueError(f"{path}: {error}") from None
    except RecursionError:
        raise ValueError(f"{path}: nested too deeply to be a calibration") from None


def calibrations() -> list[str]:
    """Names of the shipped calibrations."""
    return sorted(path.stem for path in SHIPPED.glob("*.json"))


def parse(data: Any) -> Calibration:
    """A calibration from parsed JSON. Raises ValueError naming the field."""
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise ValueError(f"no calibration of format {FORMAT}")
    fields = _checked({k: v for k, v in data.items() if k != "format"}, _FIELDS)
    if fields["kind"] == "scaled" and "scale" not in fields:
        raise ValueError("field 'scale' is missing")
    rows = [_checked(row, _HELD_OUT, "held_out: ") for row in fields.get("held_out", ())]
    return Calibration(**fields | {"held_out": tuple(HeldOut(**row) for row in rows)})


_NUMBER, _TEXT, _WHOLE = (int, float), (str,), (int,)
_FIELDS: Mapping[str, tuple[type, ...]] = {
    "name": _TEXT, "kind": _TEXT, "model": _TEXT, "gpu": _TEXT, "scale": _NUMBER, "extra_ms": _NUMBER,
    "coefficients": (dict,), "kv_blocks": _WHOLE, "max_model_len": _WHOLE, "held_out": (list,),
    "source": (dict,),
}  # fmt: skip
_HELD_OUT: Mapping[str, tuple[type, ...]] = {
    "metric": _TEXT, "statistic": _TEXT, "error": _NUMBER, "n": _WHOLE, "where": _TEXT,
}  # fmt: skip
_NEEDED = ("name", "kind", "model", "gpu", "metric", "statistic", "error", "n")


def _checked(found: Any, known: Mapping[str, tuple[type, ...]], where: str = "") -> dict[str, Any]:
    """``found`` if its fields are those of ``known``, of their types. Raises ValueError."""
    if not isinstance(found, dict):
        raise ValueError(f"{where}an object is needed, got {found!r}")
    for name in (*found, *(name for name in known if name in _NEEDED)):
        if name not in known:
            raise ValueError(f"{where}field {name!r} is unknown")
        if name not in found:
            raise ValueError(f"{where}field {name!r} is missing")
        _check_type(f"{where}field {name!r}", found[name], known[name])
    for term, value in found.get("coefficients", {}).items():
        _check_type(f"coefficient {term!r}", value, _NUMBER)
    return found


def _check_type(what: str, value: Any, types: tuple[type, ...]) -> None:
    if isinstance(value, bool) or not isinstance(value, types):
        raise ValueError(f"{what} must be {' or '.join(kind.__name__ for kind in types)}, got {value!r}")


class LinearLatency:
    """Step times in ms: ``step + token * t + row * r + context * c + pair * p``; see ``TERMS``.

    A prefill of n new behind k cached tokens has n*k + n*(n+1)/2 pairs. Seconds on the time grid.
    """

    def __init__(self, name: str, coefficients: Mapping[str, float]) -> None:
        self.name = name
        self._step, self._token, self._row, self._context, self._pair = (
            coefficients.get(term, 0.0) / 1e3 for term in TERMS
        )

    def step(self, prefills: Sequence[tuple[int, int]], n_decode: int, sum_ctx: int) -> float:
        """Seconds of one step; see ``LatencyModel.step``. Raises ValueError if the step is empty."""
        if not prefills:
            a, b, _ = self.decode_line(n_decode, sum_ctx)
            return on_grid(a + b * sum_ctx)
        tokens = n_decode + sum(new for new, _ in prefills)
        pairs = sum(new * cached + new * (new + 1) // 2 for new, cached in prefills)
        fixed = self._step + self._token * tokens + self._row * (n_decode + len(prefills))
        return on_grid(fixed + self._context * sum_ctx + self._pair * pairs)

    def decode_line(self, n_decode: int, sum_ctx: int) -> tuple[float, float, float]:  # noqa: ARG002
        """(a, b, INF); see ``LatencyModel.decode_line``. Raises ValueError if there is no call."""
        if n_decode < 1:
            raise ValueError(f"a decode step needs at least one call, got {n_decode}")
        return self._step + (self._token + self._row) * n_decode, self._context, INF


class LinearModel(LinearLatency):
    """A linear calibration as a served model."""

    def __init__(self, calibration: Calibration) -> None:
        super().__init__(f"{calibration.model}/{calibration.gpu}", calibration.coefficients)
        self.tp, self.gpu = gpus_of(calibration.model), calibration.gpu
        self.model = calibration.model.removesuffix(f":tp{self.tp}")
        self.kv_blocks, self.max_model_len = calibration.kv_blocks, calibration.max_model_len
        self.calibration: Calibration | None = calibration
        self.provenance: dict[str, Any] = {"package": "calibration", "calibration": asdict(calibration)}
        self.digest = calibration.digest
        self.uncertainty = band_of(calibration.held_out)

    def describe(self) -> str:
        """Where the step times come from, and how far off they were on unseen data."""
        return self.calibration.describe() if self.calibration else ""


class CalibratedModel(ScaledLatency):
    """A table or roofline corrected by two numbers. Raises ValueError if the calibration is of another,
    or was made on other step times than these."""

    def __init__(self, base: ServedModel, calibration: Calibration) -> None:
        _check_base(base, calibration)
        super().__init__(base, calibration.scale, calibration.extra_ms)
        self.model, self.gpu, self.tp = base.model, base.gpu, base.tp
        self.kv_blocks, self.max_model_len = base.kv_blocks, base.max_model_len
        self.calibration: Calibration | None = calibration
        self.provenance: dict[str, Any] = {**base.provenance, "calibration": asdict(calibration)}
        self.digest = hashlib.sha256(f"{base.digest} {calibration.digest}".encode()).hexdigest()
        self.uncertainty = band_of(calibration.held_out)
        made = (base.provenance.get(k) for k in ("package", "version", "kernels"))
        self._source = " ".join(str(word) for word in made if word)

    def describe(self) -> str:
        """The base's source, the two numbers and how far off they were on unseen data."""
        return f"{self._source}; {self.calibration.describe() if self.calibration else ''}"


def _check_base(base: ServedModel, calibration: Calibration) -> None:
    """Raises ValueError unless the calibration is of this model, GPU and table."""
    name = full_name(base.model, base.tp)
    if calibration.gpu != base.gpu or not same_model(calibration.model, name):
        raise ValueError(
            f"calibration {calibration.name} is of {calibration.model} on {calibration.gpu}, "
            f"not of {name} on {base.gpu}"
        )
    table = calibration.source.get("table")
    if table is not None and table != base.digest:
        raise ValueError(
            f"calibration {calibration.name} was made on other step times of {name} on {base.gpu} (digest "
            f"{str(table)[:12]}, here {base.digest[:12]}): run bench calibrate again on its recording"
        )


def band_of(held_out: Sequence[HeldOut]) -> tuple[float, float]:
    """(low, high) factor by which absolute times may be off: the largest ``BAND`` of held-out errors, both
    ways; without one the largest error there is, and never less than ``LEAST_BAND``."""
    wide = [row.error for row in held_out if row.statistic == BAND]
    worst = max(wide) if wide else max([LEAST_BAND, *(row.error for row in held_out)])
    return max(0.0, 1.0 - worst), 1.0 + worst

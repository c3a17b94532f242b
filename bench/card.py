"""The fidelity card: why the numbers of a result may be believed, and how far.

``card`` makes it from what a manifest holds, so that results of any age have one. Errors of
validation are those known when the card is made (``bench fidelity`` writes them).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from systems.latency.calibration import HeldOut, band_of
from systems.latency.validation import NOTHING, Validation, validations

Card = dict[str, Any]

LIVE = "vllm"
KINDS = {
    "sim": "simulated: vLLM V1's rules on a virtual clock",
    "reference": "simulated: vLLM V1's rules on a virtual clock, one step at a time",
    "vllm-virtual": "vLLM's own scheduler on a virtual clock, step times simulated",
    LIVE: "measured: real servers on the real clock",
}
FITTED_ON = ("file", "part", "rows")
"""Keys of a calibration's source that say on what it was fitted."""
MEASURED = "measured, nothing simulated; the client's own lateness is in the summary"
EXACT = "none: each step is compared with the published one"
_DIGITS = 10  # of a hash, to people


def card(made: Mapping[str, Any]) -> Card:
    """The card of a manifest (or of a plan's identity and details) as plain data; "" and None: not recorded.

    ``engine``: name, kind, replicas, kv_blocks (of each). ``table``: where step times come from,
    ``digest`` (hex) of the numbers, ``smallest_step_ms``. ``calibration``: None, or name, numbers, what it
    was fitted on. ``error``: ``source`` (calibration, validation, exact or none), ``rows`` in words, also
    ``short``. ``band``: (low, high) factor by which absolute times may be off. ``varied``: parts that this
    run itself multiplies. ``fallbacks``: options served otherwise than asked.
    """
    identity = made.get("identity") or {}
    table = made.get("latency_table") or {}
    origin = table.get("provenance") or {}
    name = str(identity.get("engine", ""))
    model, gpu = str(made.get("model", "")), str(made.get("gpu", ""))
    return {
        "engine": {
            "name": name,
            "kind": KINDS.get(name, "engine of an unknown kind"),
            "replicas": identity.get("replicas"),
            "kv_blocks": (identity.get("engine_config") or {}).get("kv_blocks"),
        },
        "model": model,
        "gpu": gpu,
        "table": _measured(made) if name == LIVE else _table(table, origin, str(identity.get("latency", ""))),
        "calibration": _calibration(origin),
        "error": _known(MEASURED) if name == LIVE else _error(origin, model, gpu),
        "band": list(table.get("uncertainty") or _band(origin)) if origin else None,
        "varied": _varied(origin, identity.get("transfer")),
        "fallbacks": _fallbacks(made),
    }


def _table(table: Mapping[str, Any], origin: Mapping[str, Any], digest: str) -> dict[str, Any]:
    package = str(origin.get("package", ""))
    kinds = {"roofline": "roofline, no kernel measured", "calibration": "linear step model, fitted"}
    return {
        "name": table.get("name", ""),
        "kind": kinds.get(package, "measured kernels" if origin else "not recorded"),
        **{k: str(origin.get(k, "")) for k in ("package", "version", "kernels", "exported")},
        "digest": digest[:_DIGITS],
        "smallest_step_ms": table.get("smallest_step_ms"),
    }


def _measured(made: Mapping[str, Any]) -> dict[str, Any]:
    """Of live engines: the machine in the table's place."""
    live = (made.get("identity") or {}).get("live") or {}
    where = f"{live.get('engine', '')} {live.get('version', '')}, {live.get('machine', '')}"
    return {"name": where, "kind": f"real steps of {where}", "digest": ""}


def _known(text: str) -> dict[str, Any]:
    return {"source": "exact", "rows": [text], "short": [text]}


def _calibration(origin: Mapping[str, Any]) -> dict[str, Any] | None:
    found = origin.get("calibration")
    if not found:
        return None
    source = found.get("source") or {}
    return {
        **{k: found.get(k) for k in ("name", "kind", "scale", "extra_ms", "coefficients")},
        "fitted_on": {k: source[k] for k in FITTED_ON if k in source} or dict(source),
    }


def _band(origin: Mapping[str, Any]) -> Sequence[float]:
    """Where no band is recorded: by the held-out errors; +-15 % if there are none (docs/latency.md)."""
    return band_of([HeldOut(**row) for row in (origin.get("calibration") or {}).get("held_out", ())])


def _error(origin: Mapping[str, Any], model: str, gpu: str) -> dict[str, Any]:
    """Held-out errors of the calibration; without one, comparisons of (model, GPU) with real engines
    in which nothing was fitted either."""
    fit = origin.get("calibration")
    if fit:
        held = [str(HeldOut(**row)) for row in fit.get("held_out", ())]
        return {"source": "calibration" if held else "none", "rows": held, "short": held}
    rows = raw(model, gpu)
    return {
        "source": "validation" if rows else "none",
        "rows": [str(row) for row in rows],
        "short": [
            f"{row.metric} {row.error:.1%} {row.statistic} (n={row.n}, fitted: {row.fitted})" for row in rows
        ],
    }


def raw(model: str, gpu: str) -> list[Validation]:
    """Validations of a model as it is: errors of fitted numbers say nothing of those without the fit."""
    return [row for row in validations(model, gpu) if row.fitted == NOTHING]


def _varied(origin: Mapping[str, Any], transfer: Mapping[str, Any] | None) -> dict[str, float]:
    found = {str(k): float(v) for k, v in (origin.get("scales") or {}).items()}
    scale = float((transfer or {}).get("scale", 1.0))
    return found | ({"PCIe": scale} if scale != 1.0 else {})


def _fallbacks(made: Mapping[str, Any]) -> list[str]:
    """As the manifest lists them; older ones have them in the badge only."""
    if "fallbacks" in made:
        return [str(text) for text in made["fallbacks"]]
    parts = str(made.get("badge", "")).split("; ")
    return [part.removeprefix("FALLBACK ") for part in parts if part.startswith("FALLBACK ")]


def of_schedule(data: Mapping[str, Any]) -> Card:
    """The card of an example of kind ``schedule``: steps of a stated length, nothing measured in it."""
    return {
        "engine": {
            "name": "sim",
            "kind": f"simulated: steps of {data.get('step_s', 1.0):g} s each, as the example states them",
            "replicas": 1,
            "kv_blocks": None,
        },
        "model": "",
        "gpu": "",
        "table": {"name": "", "kind": "none: a step's length is given", "digest": ""},
        "calibration": None,
        "error": {"source": "exact", "rows": [EXACT], "short": [EXACT]},
        "band": None,
        "varied": {},
        "fallbacks": [],
    }

"""Cards, and what was varied, made by hand."""

from typing import Any

METRICS = ["program.response.mean", "program.response.p95"]


def card(**changes: Any) -> dict[str, Any]:
    """The card of a measured table."""
    base = {
        "engine": {"name": "sim", "kind": "simulated: rules", "replicas": 2, "kv_blocks": 27062},
        "model": "m<8b>", "gpu": "a100",
        "table": {"name": "m/a100", "kind": "measured kernels", "package": "lib", "version": "1.2",
                  "kernels": "vLLM 0.14.0, measured", "exported": "2026-11-29", "digest": "0123456789",
                  "smallest_step_ms": 11.5},
        "calibration": None, "error": {"source": "none", "rows": [], "short": []}, "band": [0.85, 1.15],
        "varied": {}, "fallbacks": [],
    }  # fmt: skip
    return base | changes


def fit(**changes: Any) -> dict[str, Any]:
    """A calibration's part of a card."""
    base = {"name": "mine", "kind": "scaled", "scale": 1.043, "extra_ms": 0.52, "coefficients": {},
            "fitted_on": {"file": "run.csv", "rows": 120}}  # fmt: skip
    return base | changes


def effect(
    ratio: float | None, low: float | None = None, high: float | None = None, why: str = ""
) -> dict[str, Any]:
    """One metric under one variation."""
    return {"ratio": ratio, "low": low, "high": high, "why": why}


def sensitivity(seeds: int = 8) -> dict[str, Any]:
    """Two variations that count, and one that does not apply."""
    rows = [
        {"part": "prefill", "factor": f, "name": f"prefill x {f}", "why": "",
         "effects": {METRICS[0]: effect(f, f - 0.01, f + 0.01), METRICS[1]: effect(None, why="p95: n < 130")}}
        for f in (0.85, 1.15)
    ]  # fmt: skip
    rows.append(
        {"part": "PCIe", "factor": 0.85, "name": "PCIe x 0.85", "why": "n/a: moves nothing", "effects": {}}
    )
    return {"seeds": list(range(1, seeds + 1)), "metrics": METRICS, "rows": rows}


def entry(**changes: Any) -> dict[str, Any]:
    """What ``bench card`` shows of a group."""
    base = {"group": "g", "system": "atlas", "workload": "w_x", "badge": "SIMULATED", "load": "2/s",
            "seeds": [1, 2, 3], "card": card(), "sensitivity": None,
            "command": "bench card r --sensitivity"}  # fmt: skip
    return base | changes


def survival(outcome: str = "worse", changed: dict[str, str] | None = None, **more: Any) -> dict[str, Any]:
    """A comparison of one gate that was varied."""
    changed = changed or {}
    lasting = {"verdict": outcome, "survives": "no" if changed else "yes", "changed": changed}
    rows = [
        {"name": "prefill x 0.85", "why": "", "outcome": changed.get("prefill x 0.85", outcome),
         "metrics": {"a.gate": {"verdict": changed.get("prefill x 0.85", outcome), "effect": 1.02, "low": 1.0,
                                "high": 1.1, "scale": "ratio"}}},
        {"name": "PCIe x 0.85", "why": "n/a: neither side moves", "outcome": "", "metrics": {}},
    ]  # fmt: skip
    sides = {name: {"system": name, "workload": "w", "load": "2/s", "seeds": [1]} for name in ("base", "new")}
    base = {
        "rows": rows,
        "overall": lasting,
        "metrics": {"a.gate": lasting},
        "tested": 1,
        "failed": [],
        **sides,
    }
    return base | more

"""Engine options a system may set: their defaults, and what their values may be.

What they do is in docs/engine-options.md; which engine can do it, in ``capabilities``.
"""

from __future__ import annotations

from collections.abc import Mapping

from systems.slots import CatalogError, Knob, unknown
from vocabulary import INF

PREEMPTIONS = ("recompute", "swap", "batched-swap", "hold", "free")
"""What becomes of a preempted call's KV. ``recompute``: dropped. ``swap``: moved to host memory,
a copy per block and layer. ``batched-swap``: the same in one copy per transfer. ``hold``: kept on
the GPU while there is room. ``free``: moved, which costs nothing, into unlimited host memory."""

ENGINE_OPTIONS: dict[str, Knob] = {
    "prefix_cache": True,
    "chunked_prefill": True,
    "schedule_every": 1,
    "preemption": "recompute",
    "host_tier": False,
    "host_gb": 1200.0,
    "swap_scale": 1.0,
}
"""Engine options a system may set, with their defaults.

``schedule_every``: steps per pass of the policies. ``host_gb``: host memory for swapped calls and
the tier, in 1e9 bytes per engine; default: the paper's swap space (Autellix, section 6).
``swap_scale`` multiplies the time transfers take."""


def engine_options(options: Mapping[str, object], place: str) -> tuple[tuple[str, Knob], ...]:
    """All options, sorted, checked. Raises CatalogError naming the option and what it may be."""
    checked = dict(ENGINE_OPTIONS)
    for name, value in options.items():
        if name not in ENGINE_OPTIONS:
            raise CatalogError(f"{place}: {unknown('engine option', name, ENGINE_OPTIONS)}")
        checked[name] = _checked(name, value, place)
    if checked["host_tier"] and not checked["prefix_cache"]:
        raise CatalogError(
            f"{place}: engine.host_tier keeps what leaves the prefix cache, but engine.prefix_cache is false"
        )
    return tuple(sorted(checked.items()))


def _checked(name: str, value: object, place: str) -> Knob:
    default, where = ENGINE_OPTIONS[name], f"{place}: engine.{name}"
    if isinstance(default, bool):
        if not isinstance(value, bool):
            raise CatalogError(f"{where} must be true or false, got {value!r}")
        return value
    if isinstance(default, str):
        if value not in PREEMPTIONS:
            raise CatalogError(f"{place}: {unknown(f'engine.{name}', str(value), PREEMPTIONS)}")
        return value
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise CatalogError(f"{where} must be a number, got {value!r}")
    if isinstance(default, int):
        if value != value or value in (INF, -INF) or int(value) != value or value < 1:
            raise CatalogError(f"{where} must be a whole number of at least 1, got {value!r}")
        return int(value)
    if not 0.0 <= value <= (INF if name == "host_gb" else 1e6):
        raise CatalogError(f"{where} must be a number of at least 0, got {value!r}")
    return float(value)

"""What gates' knobs may be; each raises ValueError with the knob's name and what would be right."""

from __future__ import annotations

import math
from collections.abc import Sequence


def number(name: str, value: object, *, least: float = 0.0, above: bool = False) -> float:
    """A finite number of at least ``least`` (``above``: more than that)."""
    given = value if isinstance(value, int | float) and not isinstance(value, bool) else math.nan
    if math.isfinite(given) and (given > least or (given == least and not above)):
        return float(given)
    bound = f"above {least:g}" if above else f"of at least {least:g}"
    raise ValueError(f"{name} must be a number {bound}, got {value!r}")


def whole(name: str, value: object, *, least: int = 0) -> int:
    """A whole number of at least ``least``."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError(f"{name} must be a whole number of at least {least}, got {value!r}")
    return value


def flag(name: str, value: object) -> bool:
    """True or false."""
    if not isinstance(value, bool):
        raise ValueError(f"{name} must be true or false, got {value!r}")
    return value


def one_of(name: str, value: object, choices: Sequence[str]) -> str:
    """One of the named choices."""
    if not isinstance(value, str) or value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(choices)}; got {value!r}")
    return value

"""Checks of policies' knobs: each raises ValueError with the knob's name and what would be right."""

from __future__ import annotations

import math
from collections.abc import Sequence

from vocabulary import INF

UNITS = ("step", "s", "token")


def number(name: str, value: object) -> float:
    """``value`` as a float; infinity is fine, NaN is not."""
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value:
        raise ValueError(f"{name} must be a number, got {value!r}")
    return float(value)


def at_least(name: str, value: object, least: float) -> float:
    """``value`` as a float >= ``least``; infinity is fine."""
    checked = number(name, value)
    if checked < least:
        raise ValueError(f"{name} must be at least {least:g}, got {value!r}")
    return checked


def finite(name: str, value: object, *, least: float = 0.0, above: bool = False) -> float:
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


def one_of(name: str, value: object, choices: Sequence[str]) -> str:
    """``value`` if it is one of ``choices``."""
    if not isinstance(value, str) or value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(choices)}; got {value!r}")
    return value


def flag(name: str, value: object) -> bool:
    """``value`` if it is True or False."""
    if not isinstance(value, bool):
        raise ValueError(f"{name} must be true or false, got {value!r}")
    return value


def positives(name: str, values: object) -> tuple[float, ...]:
    """A list of numbers > 0, infinity included."""
    if isinstance(values, int | float) and not isinstance(values, bool):
        values = (values,)
    if isinstance(values, str) or not isinstance(values, Sequence):
        raise ValueError(f"{name} must be a list of numbers, got {values!r}")
    checked = tuple(number(f"{name}[{i}]", v) for i, v in enumerate(values))
    for i, v in enumerate(checked):
        if v <= 0.0:
            raise ValueError(f"{name}[{i}] must be greater than 0, got {values[i]!r}")
    return checked


def increasing(name: str, values: object) -> tuple[float, ...]:
    """Positive numbers, each larger than the one before (infinity may repeat)."""
    checked = positives(name, values)
    for i in range(1, len(checked)):
        low, high = checked[i - 1], checked[i]
        if high <= low and high != INF:
            raise ValueError(
                f"{name} must increase, but {name}[{i}] = {high:g} is not above {name}[{i - 1}] = {low:g}"
            )
    return checked

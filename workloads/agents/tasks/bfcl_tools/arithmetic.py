"""Sums (BFCL's MathAPI). There is no state: tasks whose calculation is wrong fail by its response."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from decimal import Decimal, localcontext

from workloads.agents.tasks.bfcl_tools.base import Result, ToolError, Tools

PRECISE = 100
"""The most digits that ``logarithm`` and ``square_root`` are asked for."""
UNDEFINED = "cannot be computed: outside of what the function is defined for"
SI = {"m": 1.0, "km": 1e3, "cm": 1e-2, "mm": 1e-3, "um": 1e-6, "nm": 1e-9}
IMPERIAL = {
    ("cm", "in"): 1 / 2.54,
    ("m", "ft"): 1 / 0.3048,
    ("m", "yd"): 1 / 0.9144,
    ("km", "miles"): 1 / 1.609344,
    ("kg", "lb"): 1 / 0.45359237,
}


class MathAPI(Tools):
    """Functions of numbers."""

    def absolute_value(self, number: float) -> Result:
        """|number|."""
        return {"result": abs(number)}

    def add(self, a: float, b: float) -> Result:
        """a + b."""
        return {"result": a + b}

    def subtract(self, a: float, b: float) -> Result:
        """a - b."""
        return {"result": a - b}

    def multiply(self, a: float, b: float) -> Result:
        """a * b."""
        return {"result": a * b}

    def divide(self, a: float, b: float) -> Result:
        """a / b."""
        return {"result": _tried(lambda: a / b)}

    def power(self, base: float, exponent: float) -> Result:
        """base to the power of exponent."""
        return {"result": _tried(lambda: math.pow(base, exponent))}

    def percentage(self, part: float, whole: float) -> Result:
        """part of whole in percent."""
        return {"result": _tried(lambda: part / whole * 100)}

    def round_number(self, number: float, decimal_places: int = 0) -> Result:
        """number with so many decimal places."""
        return {"result": round(number, decimal_places)}

    def square_root(self, number: float, precision: int) -> Result:
        """The square root to ``precision`` digits."""
        return {"result": _precisely(lambda: Decimal(repr(number)).sqrt(), precision)}

    def logarithm(self, value: float, base: float, precision: int) -> Result:
        """The logarithm of value to a base, to ``precision`` digits."""
        return {"result": _precisely(lambda: Decimal(repr(value)).ln() / Decimal(repr(base)).ln(), precision)}

    def mean(self, numbers: list[float]) -> Result:
        """The mean."""
        return {"result": _tried(lambda: sum(numbers) / len(numbers))}

    def standard_deviation(self, numbers: list[float]) -> Result:
        """The standard deviation of the population."""
        return {"result": _tried(lambda: statistics.pstdev(numbers))}

    def max_value(self, numbers: list[float]) -> Result:
        """The largest."""
        return {"result": _tried(lambda: max(numbers))}

    def min_value(self, numbers: list[float]) -> Result:
        """The smallest."""
        return {"result": _tried(lambda: min(numbers))}

    def sum_values(self, numbers: list[float]) -> Result:
        """The sum."""
        return {"result": sum(numbers)}

    def si_unit_conversion(self, value: float, unit_in: str, unit_out: str) -> Result:
        """Between units of length."""
        if unknown := [unit for unit in (unit_in, unit_out) if unit not in SI]:
            raise ToolError(f"no unit {unknown[0]!r}; there are {', '.join(SI)}")
        return {"result": value * SI[unit_in] / SI[unit_out]}

    def imperial_si_conversion(self, value: float, unit_in: str, unit_out: str) -> Result:
        """Between an SI unit and an imperial one."""
        if (unit_in, unit_out) in IMPERIAL:
            return {"result": value * IMPERIAL[unit_in, unit_out]}
        if (unit_out, unit_in) in IMPERIAL:
            return {"result": value / IMPERIAL[unit_out, unit_in]}
        pairs = ", ".join(f"{a}/{b}" for a, b in IMPERIAL)
        raise ToolError(f"no conversion from {unit_in!r} to {unit_out!r}; there are {pairs}")


def _tried(compute: Callable[[], float]) -> float:
    try:
        return compute()
    except (ArithmeticError, ValueError) as error:
        raise ToolError(f"cannot be computed: {error}") from error


def _precisely(compute: Callable[[], Decimal], digits: int) -> float:
    if not 1 <= digits <= PRECISE:
        raise ToolError(f"precision: 1 to {PRECISE} digits, not {digits}")
    with localcontext() as context:
        context.prec = digits + 6
        try:
            found = compute()
        except ArithmeticError as error:
            raise ToolError(UNDEFINED) from error
        context.prec = digits
        if not found.is_finite():
            raise ToolError(UNDEFINED)
        return float(+found)

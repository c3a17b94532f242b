"""Exact arithmetic of the game of 24: steps, what they leave, and whether a goal can still be reached."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Sequence
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

Numbers = tuple[Fraction, ...]
"""What is left, in rising order."""
_NUMBER = r"-?\d+(?:\.\d+)?(?:/\d+)?"
_SPACED = re.compile(rf"({_NUMBER})\s+([-+*/])\s+({_NUMBER})")
_TIGHT = re.compile(r"(\d+(?:\.\d+)?)\s*([-+*/])\s*(\d+(?:\.\d+)?)")
_SIGNS = str.maketrans("\u00d7\u00b7\u00f7\u2212\u2013", "**/--")
_MOST_CHARACTERS = 500
"""Of a text that is parsed: a reply longer than that holds no step or expression."""


class Step(NamedTuple):
    """``a`` and ``b`` become one number; ``sign``: one of + - * /."""

    a: Fraction
    sign: str
    b: Fraction

    def text(self) -> str:
        """With spaces around the sign, so that a fraction is no division."""
        return f"{show(self.a)} {self.sign} {show(self.b)}"


def ordered(numbers: Iterable[Fraction | int]) -> Numbers:
    """As a state is written."""
    return tuple(sorted(map(Fraction, numbers)))


def plain(text: str) -> str:
    """With the signs of a keyboard, and no longer than a text that is parsed."""
    return text[:_MOST_CHARACTERS].translate(_SIGNS)


def show(number: Fraction) -> str:
    """A whole number, or numerator/denominator."""
    return str(number)


def listed(numbers: Sequence[Fraction]) -> str:
    """Numbers with blanks between them."""
    return " ".join(map(show, numbers))


def parse_numbers(text: str) -> Numbers:
    """The numbers in a text (``4 8/3 2.5``); none where there are none."""
    found = (_fraction(word) for word in re.findall(_NUMBER, plain(text)))
    return ordered([number for number in found if number is not None])


def parse_step(text: str) -> Step | None:
    """The first ``a sign b`` in a text that may say other things, too; None if there is none."""
    text = plain(text)
    found = _SPACED.search(text) or _TIGHT.search(text)
    if found is None:
        return None
    a, b = _fraction(found[1]), _fraction(found[3])
    return Step(a, found[2], b) if a is not None and b is not None else None


def _fraction(word: str) -> Fraction | None:
    whole, _, part = word.partition("/")
    try:
        return Fraction(whole) / Fraction(part or "1")
    except ZeroDivisionError:
        return None


def result(step: Step) -> Fraction | None:
    """What it gives; None for a division by zero."""
    if step.sign == "/":
        return step.a / step.b if step.b else None
    if step.sign == "*":
        return step.a * step.b
    return step.a + step.b if step.sign == "+" else step.a - step.b


def after(numbers: Numbers, step: Step) -> Numbers | str:
    """What the step leaves of ``numbers``, or what is wrong with it."""
    left = list(numbers)
    for number in (step.a, step.b):
        if number not in left:
            return f"{show(number)} is not among {listed(numbers)}"
        left.remove(number)
    got = result(step)
    return "nothing can be divided by 0" if got is None else ordered([*left, got])


@lru_cache(maxsize=100_000)
def steps(numbers: Numbers) -> tuple[tuple[Step, Numbers], ...]:
    """Every step that leaves something else, and what it leaves; the first of those that leave the same."""
    found: dict[Numbers, Step] = {}
    for i, a in enumerate(numbers):
        for j, b in enumerate(numbers):
            rest = [number for k, number in enumerate(numbers) if k not in (i, j)]
            for sign in "" if i == j else "+-*/" if i < j else "-/":
                got = result(Step(a, sign, b))
                if got is not None:
                    found.setdefault(ordered([*rest, got]), Step(a, sign, b))
    return tuple((step, left) for left, step in found.items())


@lru_cache(maxsize=1_000_000)
def reachable(numbers: Numbers, goal: int) -> bool:
    """Whether all of them together can give ``goal``."""
    if len(numbers) == 1:
        return numbers[0] == goal
    if len(numbers) == 2:  # most states have two: no need to list what they leave
        a, b = numbers
        return goal in (a + b, a * b, a - b, b - a) or a == goal * b != 0 or b == goal * a != 0
    return any(reachable(left, goal) for _, left in steps(numbers))


def solve(numbers: Numbers, goal: int) -> list[Step]:
    """Steps that reach it; none if it cannot be reached (or is there already)."""
    path: list[Step] = []
    while len(numbers) > 1:
        onward = ((step, left) for step, left in steps(numbers) if reachable(left, goal))
        step, numbers = next(onward, (None, ()))
        if step is None:
            return []
        path.append(step)
    return path


def expression(numbers: Sequence[int], path: Sequence[Step]) -> str:
    """The steps as one expression of the numbers that they began with. Raises ValueError if they are not
    steps of those numbers, or leave more than one."""
    parts = [(Fraction(number), str(number)) for number in numbers]
    for step in path:
        a, b = _taken(parts, step.a), _taken(parts, step.b)
        got = result(step)
        if got is None:
            raise ValueError(f"{step.text()}: nothing can be divided by 0")
        parts.append((got, f"({a} {step.sign} {b})"))
    if len(parts) != 1:
        raise ValueError(f"{len(parts)} numbers are left")
    text = parts[0][1]
    return text[1:-1] if path else text


def _taken(parts: list[tuple[Fraction, str]], number: Fraction) -> str:
    for i, (value, text) in enumerate(parts):
        if value == number:
            del parts[i]
            return text
    raise ValueError(f"{show(number)} is not there")


def evaluate(text: str) -> tuple[Fraction, list[int]]:
    """The value of an expression of whole numbers, + - * / and parentheses, and the numbers it uses.

    Raises ValueError for anything else. Nothing is executed.
    """
    if len(text) > _MOST_CHARACTERS:
        raise ValueError("it is too long")
    try:
        tree = ast.parse(plain(text).strip(), mode="eval")
    except (SyntaxError, RecursionError, MemoryError) as error:
        raise ValueError("it is no expression") from error
    used: list[int] = []
    return _value(tree.body, used), sorted(used)


_SIGN_OF: dict[type[ast.operator], str] = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/"}


def _value(node: ast.expr, used: list[int]) -> Fraction:
    match node:
        case ast.Constant(value=int() as number) if not isinstance(number, bool):
            used.append(number)
            return Fraction(number)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _SIGN_OF:
            got = result(Step(_value(left, used), _SIGN_OF[type(op)], _value(right, used)))
            if got is None:
                raise ValueError("it divides by 0")
            return got
    raise ValueError("it has something else than whole numbers, + - * / and parentheses")

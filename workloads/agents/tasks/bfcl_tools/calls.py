"""BFCL's ground truths: calls written as Python, which are read and never run."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any, NamedTuple

from workloads.agents.contract import ToolSpec


class TrueCall(NamedTuple):
    """A call of a ground truth, its arguments by name."""

    name: str
    arguments: dict[str, Any]


def parse_call(text: str, functions: Mapping[str, ToolSpec]) -> TrueCall:
    """``name(1, key='x')`` with literal arguments; those without a name get theirs from ``functions``.

    Raises ValueError saying what it is instead.
    """
    try:
        call = ast.parse(text.strip(), mode="eval").body
    except SyntaxError as error:
        raise ValueError(f"not a call: {text!r}") from error
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
        raise ValueError(f"not a call of a function by its name: {text!r}")
    name = call.func.id
    if name not in functions:
        raise ValueError(f"a call of '{name}', which none of the task's classes has")
    names = list(functions[name].parameters["properties"])
    if len(call.args) > len(names):
        raise ValueError(f"more arguments than {name} has: {text!r}")
    arguments = {key: ast.literal_eval(value) for key, value in zip(names, call.args, strict=False)}
    for keyword in call.keywords:
        if keyword.arg is None or keyword.arg in arguments:
            raise ValueError(f"an argument without a name or with one twice: {text!r}")
        arguments[keyword.arg] = ast.literal_eval(keyword.value)
    return TrueCall(name, arguments)

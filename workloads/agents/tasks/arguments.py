"""What is wrong with the arguments of a tool call, in words for the model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from workloads.agents.contract import ToolSpec

_PYTHON: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
}


def wrong_arguments(spec: ToolSpec, arguments: Mapping[str, Any]) -> str:
    """A name that the tool does not have, one that is missing, a wrong type; "" if all is well.

    Of a schema it knows ``properties``, ``required``, ``type`` (or several) and the type of ``items``.
    """
    known: Mapping[str, Any] = spec.parameters["properties"]
    if unknown := [name for name in arguments if name not in known]:
        return f"{spec.name} has no argument '{unknown[0]}'; it has {', '.join(known) or 'none'}"
    if missing := [name for name in spec.parameters["required"] if name not in arguments]:
        return f"{spec.name} wants '{missing[0]}' ({' or '.join(_types(known[missing[0]]))})"
    for name, value in arguments.items():
        if wanted := _mistyped(value, known[name]):
            return f"{spec.name}: '{name}' must be {wanted}, not {_short(value)}"
    return ""


def _types(schema: Mapping[str, Any]) -> list[str]:
    return list(schema["type"]) if isinstance(schema["type"], list) else [schema["type"]]


def _mistyped(value: Any, schema: Mapping[str, Any]) -> str:
    if not any(_is(value, kind) for kind in _types(schema)):
        return " or ".join(_types(schema))
    item = schema.get("items", {}).get("type")
    if isinstance(value, list) and item and not all(_is(one, item) for one in value):
        return f"an array of {item}"
    return ""


def _is(value: Any, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    return isinstance(value, _PYTHON[kind])


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."

"""BFCL's function docs as tools.

The docs are lines of JSON, a file per class. Their types are Python's words; tools are told in JSON schema.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from workloads.agents.contract import ToolSpec
from workloads.agents.tasks.bfcl_tools.arithmetic import MathAPI
from workloads.agents.tasks.bfcl_tools.base import Tools
from workloads.agents.tasks.bfcl_tools.filesystem import GorillaFileSystem
from workloads.agents.tasks.bfcl_tools.messages import MessageAPI
from workloads.agents.tasks.bfcl_tools.posting import TwitterAPI
from workloads.agents.tasks.bfcl_tools.tickets import TicketAPI
from workloads.agents.tasks.bfcl_tools.trading import TradingBot
from workloads.agents.tasks.bfcl_tools.travel import TravelAPI
from workloads.agents.tasks.bfcl_tools.vehicle import VehicleControlAPI
from workloads.base import WorkloadError


class ToolClass(NamedTuple):
    """A class of tools and the file with its functions' docs."""

    make: type[Tools]
    docs: str


CLASSES = {
    "GorillaFileSystem": ToolClass(GorillaFileSystem, "gorilla_file_system.json"),
    "MathAPI": ToolClass(MathAPI, "math_api.json"),
    "MessageAPI": ToolClass(MessageAPI, "message_api.json"),
    "TwitterAPI": ToolClass(TwitterAPI, "posting_api.json"),
    "TicketAPI": ToolClass(TicketAPI, "ticket_api.json"),
    "TradingBot": ToolClass(TradingBot, "trading_bot.json"),
    "TravelAPI": ToolClass(TravelAPI, "travel_booking.json"),
    "VehicleControlAPI": ToolClass(VehicleControlAPI, "vehicle_control.json"),
}
"""By the names that tasks have in ``involved_classes``."""
DOCS = "multi_turn_func_doc"
TYPES = {"dict": "object", "float": "number", "tuple": "array", "any": "string"}
WORDS_TOO = frozenset({"ticket_id"})
"""Documented as integers, but some of the data's are words (task 173)."""
Functions = dict[str, ToolSpec]


def read_functions(folder: Path) -> dict[str, Functions]:
    """The functions of each class by name. Raises WorkloadError naming the file and line, OSError."""
    return {name: _read(folder / DOCS / kind.docs, kind.make) for name, kind in CLASSES.items()}


def _read(path: Path, kind: type[Tools]) -> Functions:
    found: Functions = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        try:
            spec = _spec(json.loads(line))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise WorkloadError(f"{path.name}:{number}: not the docs of a function ({error!r})") from error
        if spec.name.startswith("_") or not callable(getattr(kind, spec.name, None)):
            raise WorkloadError(f"{path.name}:{number}: {kind.__name__} has no function '{spec.name}' here")
        found[spec.name] = spec
    return found


def _spec(docs: Mapping[str, Any]) -> ToolSpec:
    description = docs["description"].split("Tool description:")[-1].strip()
    return ToolSpec(docs["name"], description, _object(docs["parameters"]))


def _object(schema: Mapping[str, Any]) -> dict[str, Any]:
    properties = {name: _property(name, value) for name, value in schema["properties"].items()}
    return {"type": "object", "properties": properties, "required": list(schema.get("required", ()))}


def _property(name: str, said: Mapping[str, Any]) -> dict[str, Any]:
    kind = TYPES.get(said["type"], said["type"])
    schema: dict[str, Any] = {"type": ["integer", "string"] if name in WORDS_TOO else kind}
    if "description" in said:
        schema["description"] = said["description"].strip()
    if "items" in said:
        schema["items"] = {"type": TYPES.get(said["items"]["type"], said["items"]["type"])}
    if "properties" in said:
        schema["properties"] = _object(said)["properties"]
    return schema

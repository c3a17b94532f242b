"""What sandboxes of a run of agents are given: the parameters ``ports``, ``memory_mb``, ``disk_mb``,
``network``, ``image`` and ``share`` of a workload ``agents:NAME``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bench.errors import UsageError

PARAMETERS = ("ports", "memory_mb", "disk_mb", "network", "image", "share")
PORTS = 1
"""Dealt to every sandbox unless it is said: so that ports which are left open can be found."""
LEAST_MEMORY_MB = 64
_YES = {"true": True, "false": False}


def limits_of(said: Mapping[str, str], sandbox: str) -> dict[str, Any]:
    """Fields of ``SandboxOptions`` that are said, or are not its own defaults. ``sandbox``: the kind.

    Raises UsageError naming the parameter.
    """
    found: dict[str, Any] = {"ports": _whole("ports", said.get("ports", str(PORTS)), 0, "ports")}
    for name, least in (("memory_mb", LEAST_MEMORY_MB), ("disk_mb", 1)):
        if name in said:
            found[name] = _whole(name, said[name], least, "MiB")
    if "network" in said:
        if said["network"] not in _YES:
            raise UsageError(f"-p network must be true or false, got {said['network']!r}")
        found["network"] = _YES[said["network"]]
    if "image" in said:
        found["image"] = said["image"]
    if "image" in said and sandbox in ("process", "bwrap"):
        raise UsageError(f"-p image={said['image']}: {sandbox} has no images: take -p sandbox=docker")
    if "disk_mb" in said and sandbox == "process":
        raise UsageError("-p disk_mb: process cannot limit its disk: take -p sandbox=bwrap, or docker")
    return found


def share_of(said: Mapping[str, str]) -> int:
    """How many programs share a sandbox. Raises UsageError."""
    return _whole("share", said.get("share", "1"), 1, "programs")


def _whole(name: str, text: str, least: int, what: str) -> int:
    try:
        value = int(text)
    except ValueError:
        value = least - 1
    if value < least:
        raise UsageError(f"-p {name} must be a whole number of {what}, {least} or more, got {text!r}")
    return value

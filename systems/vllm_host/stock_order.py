"""Which order vLLM's own scheduler keeps with nothing of ours inside it (``stock``). Imports no vLLM."""

from __future__ import annotations

from dataclasses import dataclass

CLASSES = 3
"""Priorities that ``priority_of`` hands out."""


@dataclass(frozen=True)
class StockOrder:
    """Takes a policy's place in a request for an engine. ``policy``: vLLM's ``fcfs`` or ``priority``."""

    policy: str = "fcfs"

    def __post_init__(self) -> None:
        if self.policy not in ("fcfs", "priority"):
            raise ValueError(f"vLLM's own policies are fcfs and priority, not {self.policy!r}")


def priority_of(program: int) -> int:
    """A static priority for every call of a program, smaller first: 0 to CLASSES - 1, in no order."""
    return program * 7 // 2 % CLASSES

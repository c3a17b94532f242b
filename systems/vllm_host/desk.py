"""What the messages of the control channel do (docs/vllm.md). Imports nothing of vLLM."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import isfinite
from typing import Any

from systems.vllm_host.callers import Callers
from systems.vllm_host.keeper import Keeper
from vocabulary import INF

Message = Mapping[str, Any]


class Desk:
    """Answers messages. ``end``: called with the number of a program that is over and has no call here."""

    def __init__(
        self, callers: Callers, keeper: Keeper, now: Callable[[], float], end: Callable[[int], None]
    ) -> None:
        self._callers = callers
        self._keeper = keeper
        self._now = now
        self._end = end
        self._ops: dict[str, Callable[[Message], dict[str, Any]]] = {
            "retain": self._retain,
            "release": lambda m: {"released": keeper.release(self._program(m))},
            "drop": lambda m: {"blocks": keeper.drop(self._program(m))},
            "protect": lambda m: {"blocks": keeper.protect(self._program(m))},
            "end": self._over,
            "stats": lambda _: self.stats(),
            "ping": lambda _: {"now": now()},
        }

    def handle(self, message: Message) -> dict[str, Any]:
        """The answer. Raises ValueError with what is wrong."""
        op = message.get("op")
        if not isinstance(op, str) or op not in self._ops:
            raise ValueError(f"op must be one of {', '.join(self._ops)}; got {op!r}")
        return {"op": op, **self._ops[op](message)}

    def stats(self) -> dict[str, Any]:
        """What is kept, what became of what was, and how many programs are known."""
        self._forget_overdue()
        keeper = self._keeper
        kept = [pin.about for pin in keeper.pins.values()]
        return {
            "now": self._now(),
            "programs": len(self._callers),
            "pins": len(kept),
            "pinned_tokens": sum(one.tokens for one in kept),
            "pinned_blocks": keeper.pinned_blocks(),
            "reclaimable_blocks": keeper.reclaimable(),
            **keeper.count,
        }

    def _retain(self, message: Message) -> dict[str, Any]:
        until = self._until(message)
        priority = message.get("priority", 0)
        if isinstance(priority, bool) or not isinstance(priority, int):
            raise ValueError(f"priority must be a whole number, got {priority!r}")
        name = _name(message.get("program"))
        if self._callers.number(name) is None:
            self._forget_overdue()
        program = self._callers.expect(name, until)
        return {"blocks": self._keeper.retain(program, until, priority)}

    def _forget_overdue(self) -> None:
        for program in self._callers.overdue(self._now()):
            self._keeper.end(program)

    def _until(self, message: Message) -> float:
        given = [key for key in ("until_s", "for_s") if key in message]
        if len(given) != 1:
            raise ValueError("retain needs either until_s or for_s (seconds; null: for ever)")
        value = message[given[0]]
        if value is None:
            return INF
        if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value) or value < 0:
            raise ValueError(f"{given[0]} must be seconds, not negative, or null; got {value!r}")
        return value if given[0] == "until_s" else self._now() + value

    def _over(self, message: Message) -> dict[str, Any]:
        program = self._program(message)
        name = _name(message.get("program"))
        if not self._callers.end(name):
            return {"ended": False}  # when its last call has left
        self._end(program)
        return {"ended": True}

    def _program(self, message: Message) -> int:
        name = _name(message.get("program"))
        program = self._callers.number(name)
        if program is None:
            raise ValueError(f"unknown program {name!r}")
        return program


def _name(value: object) -> str:
    if not isinstance(value, str | int) or isinstance(value, bool):
        raise ValueError(f"program must be the program_id of its requests, got {value!r}")
    return str(value)

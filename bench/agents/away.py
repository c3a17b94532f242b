"""Tells our gateway that a program goes into a tool, where a script answers in the model's place.

What the engine says there is noise, so the gateway cannot read the tool from replies, and the host says that
a tool ran when it is over, which is too late for retention. The script knows with the reply.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from bench.live.goodbyes import Goodbyes
from workloads.agents.contract import Script, Turn
from workloads.agents.relay.contract import RelayCall

Key = tuple[int, str, int]
"""(program, thread, index)."""


class Heard:
    """Remembers which tool the turns of scripts ask for first, until somebody takes it."""

    def __init__(self) -> None:
        self._tools: dict[Key, str] = {}

    def around(self, scripts: Mapping[int, Script]) -> dict[int, Script]:
        """The same scripts, listened to."""
        return {program: _Heard(program, script, self._tools) for program, script in scripts.items()}

    def tool(self, call: RelayCall) -> str:
        """Of the call's turn; "" if it asked for none."""
        return self._tools.pop((call.program, call.thread, call.index), "")


class _Heard:
    def __init__(self, program: int, script: Script, tools: dict[Key, str]) -> None:
        self._program = program
        self._script = script
        self._tools = tools

    def turn(self, thread: str, index: int, asked: Mapping[str, Any]) -> Turn:
        """The script's. Raises AgentError as it does."""
        found = self._script.turn(thread, index, asked)
        if found.tool_calls:
            self._tools[self._program, thread, index] = found.tool_calls[0].name
        return found


class Away:
    """Says it with the reply: the gateway gives a word that comes after the next call no weight."""

    def __init__(self, heard: Heard, goodbyes: Callable[[], Goodbyes], run: str) -> None:
        self._heard = heard
        self._goodbyes = goodbyes
        self._run = run

    def called(self, call: RelayCall) -> None:
        """A call is over."""
        tool = self._heard.tool(call)
        if tool and call.outcome == "finished":
            self._goodbyes().away(f"{self._run}.{call.program}", call.thread, call.index, tool)

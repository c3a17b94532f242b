"""A program's tools with a clock and a limit; each call is reported once, whoever reports it."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from workloads.agents.contract import MAIN, Toolbox, ToolSpec
from workloads.sandboxes.contract import Sandbox, SandboxError

Say = Callable[[str, str, float, float, bool], None]
"""(thread, tool, begin, end, ok), as ``Told.tool``."""


class _Ran(NamedTuple):
    name: str
    begin: float
    end: float
    ok: bool


class ToolLog:
    """What tools a program ran. Times of CLOCK_MONOTONIC (s).

    The toolbox notes each call but does not know of threads; an agent that does tells of it, too. A call both
    know of is the agent's; one that only the toolbox knows of is said by ``flush``, as of thread ``MAIN``.
    """

    def __init__(self, say: Say) -> None:
        self._say = say
        self._noted: list[_Ran] = []

    def note(self, name: str, begin: float, end: float, ok: bool) -> None:
        """By the toolbox."""
        self._noted.append(_Ran(name, begin, end, ok))

    def tell(self, thread: str, name: str, begin: float, end: float, ok: bool) -> None:
        """By the agent."""
        same = (ran for ran in self._noted if ran.name == name and begin <= ran.begin and ran.end <= end)
        if (ran := next(same, None)) is not None:
            self._noted.remove(ran)
            ok = ok and ran.ok
        self._say(thread, name, begin, end, ok)

    def flush(self) -> None:
        """Nothing is kept back any more."""
        noted, self._noted = self._noted, []
        for ran in noted:
            self._say(MAIN, *ran)


class TimedTools:
    """A Toolbox around ``tools``. ``most_s``: of one call; ``sandbox``: where they run, for guests that bring
    their own tools (None if the suite needs none)."""

    def __init__(
        self,
        tools: Toolbox,
        log: ToolLog,
        most_s: float,
        sandbox: Sandbox | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.specs: Sequence[ToolSpec] = tools.specs
        self.sandbox = sandbox
        self._tools = tools
        self._log = log
        self._most_s = most_s
        self._clock = clock

    async def call(self, name: str, arguments: Mapping[str, Any]) -> str:
        """What the tool says; of one that breaks or takes too long, that. SandboxError passes."""
        begin, ok = self._clock(), False
        try:
            async with asyncio.timeout(self._most_s):
                said = await self._tools.call(name, arguments)
            ok = True
            return said
        except TimeoutError:
            return f"{name} was ended: it took more than {self._most_s:g} s"
        except SandboxError:
            raise
        except Exception as error:  # a tool's failure is text for the model
            print(f"tool {name}: {error!r}", file=sys.stderr)
            return f"{name} failed: {error}"
        finally:
            self._log.note(name, begin, self._clock(), ok)

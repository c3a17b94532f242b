"""A call on its way through the gateway: what is known of it, from its arrival to its charge."""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass, field
from typing import Any

from systems.gateway.bodies import Ask
from systems.gateway.errors import Refused
from systems.gateway.observe import Passage
from systems.gateway.programs import Program
from systems.gateway.tools import Tools
from systems.gateway.turns import Turn
from systems.gateway.usage import Counted
from systems.gateway.workers import Worker
from vocabulary import Call, Snapshot


@dataclass(slots=True, eq=False)
class Ticket:
    """``request_id``: what the engine calls it; ``client_id``: what the client does, "" if that must not
    be repeated. ``worker``: where it was sent last, None before that; ``first_sent``, ``last_sent`` (s).

    ``admitted``: the gate let it go. ``held``: the gate held it; ``held_s``: how long it waited here, for
    the gate or for a live engine. ``good``: the engine's reply was no error, so its scheduler had the call.
    ``counted``: the reply's usage; ``tools``: those it asks for. ``cut``: why we gave it up,
    with what its client is told then.
    """

    ask: Ask
    program: Program
    passage: Passage
    call: Call
    request_id: str
    turn: Turn
    task: asyncio.Task[Any] | None
    client_id: str = ""
    snap: Snapshot = field(default_factory=Snapshot)
    worker: Worker | None = None
    admitted: bool = False
    held: bool = False
    held_s: float = 0.0
    good: bool = False
    counted: Counted | None = None
    tools: Tools | None = None
    cut: Refused | None = None
    first_sent: float = math.nan
    last_sent: float = math.nan

    @property
    def took(self) -> float:
        """Seconds from when it was sent to the last bytes of a whole reply, else until it was given up."""
        passage = self.passage
        whole = passage.outcome in ("finished", "error") and not math.isnan(passage.t_last)
        return max(0.0, (passage.t_last if whole else passage.t_end) - self.last_sent)

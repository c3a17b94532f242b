"""A call inside the simulated engine."""

from __future__ import annotations

from systems.engines.radix import Held
from vocabulary import INF, Body, Call, Finished, Slot

Order = tuple[int, float, int]
"""(level, key, call.seq): smaller runs first."""

WAITING, RUNNING, GONE, HELD = range(4)
NEVER = 1 << 60
"""A step number no run reaches."""


class Request:
    """State of one call; the fields of a decoding one are implied, not updated.

    ``ids`` and ``ends`` may go on behind its ``total`` tokens (``Body``).
    ``tokens``: prompt and replies so far; while decoding, as of step ``g0``.
    ``computed``: tokens with KV while prefilling, ``hit`` of them there at
    admission. ``tree``: leading blocks held through ``chain`` (full, cached).
    ``limit``: total service at which the slot's quantum is used up.
    ``g_in``/``t_in``: step and time since which participation is not yet
    booked in ``row``. ``number``: order of admission.
    ``renewed``: its quantum ran out at this boundary. ``again``: admitted before, and its KV was lost.

    With options: ``copy`` tokens have their KV in host memory, and the call
    ``decodes`` when they are back; ``paused`` and ``swapped`` are readings of the
    engine's seconds without it and of transfers, when its books were last made up.
    """

    __slots__ = ("again", "call", "chain", "computed", "copy", "decoded", "decodes", "decoding",
                 "ends", "expire_at", "finish_at", "g0", "g_in", "hit", "ids", "limit", "number",
                 "order", "paused", "renewed", "row", "slot", "state", "swapped", "t_in", "tokens",
                 "total", "tree")  # fmt: skip

    def __init__(self, call: Call, body: Body, row: Finished, slot: Slot) -> None:
        self.call = call
        self.row = row
        self.slot = slot
        level, key, self.limit = slot
        self.order: Order = (level, key, call.seq)
        self.ids = body.ids
        self.ends = body.ends
        self.tokens = call.prompt_tokens
        self.total = call.prompt_tokens + body.output_tokens
        self.computed = self.hit = self.tree = self.decoded = self.copy = 0
        self.chain: list[Held] = []
        self.state = WAITING
        self.decoding = self.renewed = self.again = False
        self.expire_at: float = INF
        # Set when it enters the batch, its first use:
        self.number: int
        self.g_in: int
        self.t_in: float
        self.g0: int
        self.finish_at: int
        # Set and used by ``options`` only:
        self.decodes: bool
        self.paused: float
        self.swapped: float

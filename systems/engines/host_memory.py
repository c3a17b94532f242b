"""Host memory of the simulated engine: KV of swapped calls (docs/engine-options.md)."""

from __future__ import annotations

from systems.engines.request import Request
from vocabulary import blocks_for


class HostMemory:
    """``room`` 16-token blocks beside the GPU, and what is moved to and from it in the next step."""

    __slots__ = ("full", "into", "out", "outs", "room", "swap_in", "swap_out", "used")

    def __init__(self, room: int) -> None:
        self.room = room
        self.used = 0  # blocks of swapped calls
        self.out = self.into = 0  # blocks to move in the next step
        self.outs = self.full = self.swap_out = self.swap_in = 0

    def moving(self) -> bool:
        """Whether the next step moves blocks."""
        return self.out > 0 or self.into > 0

    def moved(self) -> tuple[int, int]:
        """(blocks out, blocks in) of the step that starts now."""
        moved = self.out, self.into
        self.out = self.into = 0
        return moved

    def keep(self, request: Request, computed: int, decodes: bool) -> None:
        """Move the KV of a preempted call out, if there is room for its ``computed`` tokens."""
        blocks = blocks_for(computed)
        if not blocks:
            return
        if blocks > self.room - self.used:
            self.full += 1
            return
        self.used += blocks
        self.out += blocks
        self.outs += 1
        self.swap_out += blocks
        request.copy = computed
        request.decodes = decodes

    def bring_back(self, request: Request, hit: int) -> None:
        """A call is admitted, with ``hit`` blocks found on the GPU: the rest of its copy moves in."""
        if request.copy:
            blocks = max(0, blocks_for(request.copy) - hit)
            self.into += blocks
            self.swap_in += blocks
            self.drop(request)

    def drop(self, request: Request) -> None:
        """Give up the copy of a call, if it has one."""
        self.used -= blocks_for(request.copy)
        request.copy = 0

    def totals(self) -> dict[str, float]:
        """Their names are in docs/engine-options.md, "Totals added"."""
        return {
            "swap_out_blocks": self.swap_out,
            "swap_in_blocks": self.swap_in,
            "swap_outs": self.outs,
            "swap_full": self.full,
        }

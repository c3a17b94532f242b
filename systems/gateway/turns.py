"""Whether a call is a new turn of its thread, or the same one again (docs/gateway.md, Retries)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from systems.gateway.identity import Caller

Place = tuple[str | int, ...]
"""What makes two calls the same turn, whenever they come."""


class Turn:
    """A call as its client means it: its retries are the same turn.

    ``index`` counts the thread's turns, ``attempt`` how often this one came. ``ticket`` is its last
    attempt while that is open; ``failed``: that came to nothing; ``place``: its key's, None without one.
    ``alike``: a hash that its retry has, too, even if that is written otherwise; 0 until it has failed.
    """

    __slots__ = ("alike", "attempt", "digest", "failed", "index", "place", "thread", "ticket")

    def __init__(self, thread: str, index: int, attempt: int, digest: int, place: Place | None) -> None:
        self.thread = thread
        self.index = index
        self.attempt = attempt
        self.digest = digest
        self.place = place
        self.ticket: Any = None
        self.failed = False
        self.alike = 0

    def fail(self, alike: int) -> None:
        """It came to nothing; ``ticket`` stays until it is charged."""
        self.failed, self.alike = True, alike


class Turns:
    """Those of one program, or of all programs of one call: the last of every thread, and by their keys
    those that are open or failed."""

    __slots__ = ("_keys", "_last", "_next")

    def __init__(self) -> None:
        self._next: dict[str, int] = {}
        self._last: dict[str, Turn] = {}
        self._keys: dict[Place, Turn] = {}

    def __len__(self) -> int:
        return len(self._keys)

    def take(
        self, caller: Caller, digest: int, alike: Callable[[], int] = lambda: 0
    ) -> tuple[Turn, Turn | None]:
        """The call's turn, and the attempt before it if it is one again. ``digest``: of its bytes; ``alike``
        is asked only after a failure.

        The same again is: the place of a call that is open or has failed; the place and body of the thread's
        last call; that body alone, if that call has failed or the client says that it retries.
        """
        place = place_of(caller, digest)
        before = self._again(caller, place, digest, alike)
        following = self._next.get(caller.thread, 0) if caller.name else 0
        index, attempt = (following, 1) if before is None else (before.index, before.attempt + 1)
        turn = Turn(caller.thread, index, attempt, digest, place)
        if caller.name and index + 1 >= following:  # else it is an older turn again: the last one stays that
            self._next[caller.thread] = index + 1
            self._last[caller.thread] = turn
        if place is not None:
            self._keys[place] = turn
        return turn, before

    def over(self, turn: Turn, failed: bool) -> None:
        """The attempt is over; one that has failed may come again."""
        turn.ticket, turn.failed = None, failed
        if not failed:
            self.forget(turn)

    def forget(self, turn: Turn) -> None:
        """It will not come again."""
        if turn.place is not None and self._keys.get(turn.place) is turn:
            del self._keys[turn.place]

    def _again(
        self, caller: Caller, place: Place | None, digest: int, alike: Callable[[], int]
    ) -> Turn | None:
        if place is not None and (found := self._keys.get(place)) is not None:
            return found
        last = self._last.get(caller.thread)
        if last is None:
            return None
        if last.digest != digest:
            return last if last.failed and last.alike and last.alike == alike() else None
        same = last.failed or caller.retried or (place is not None and place == last.place)
        return last if same else None


def place_of(caller: Caller, digest: int) -> Place | None:
    """Where a call's key puts it; None: nowhere, it has none.

    An Idempotency-Key is its client's word that this is one turn, whatever the body. Tracing sets one
    X-Request-Id on many calls, so that needs the same body. Programs of one call share one place: only the
    same key, body and credentials are the same there.
    """
    if not caller.name:
        return (caller.thread, caller.key, digest, caller.who) if caller.key else None
    if caller.key:
        return caller.thread, caller.key
    return (caller.thread, caller.request_id, digest) if caller.request_id else None

"""Whether a call is a new turn of its thread, or the same one again (docs/gateway.md, Retries)."""

from __future__ import annotations

from typing import Any

from systems.gateway.identity import Caller


class Turn:
    """A call as its client means it: its retries are the same turn.

    ``index`` counts the thread's turns, ``attempt`` how often this one came. ``ticket`` is its last
    attempt while that is open; ``failed``: that came to nothing.
    """

    __slots__ = ("attempt", "digest", "failed", "index", "key", "thread", "ticket")

    def __init__(self, thread: str, index: int, attempt: int, digest: int, key: str) -> None:
        self.thread = thread
        self.index = index
        self.attempt = attempt
        self.digest = digest
        self.key = key
        self.ticket: Any = None
        self.failed = False


class Turns:
    """Those of one program, or of all programs of one call: the last of every thread, and by their keys
    those that are open or failed."""

    __slots__ = ("_keys", "_last", "_next")

    def __init__(self) -> None:
        self._next: dict[str, int] = {}
        self._last: dict[str, Turn] = {}
        self._keys: dict[tuple[str, str], Turn] = {}

    def __len__(self) -> int:
        return len(self._keys)

    def take(self, caller: Caller, digest: int) -> tuple[Turn, Turn | None]:
        """The call's turn, and the attempt before it if it is one again.

        The same again is: the key of a call that is open or has failed; the key and body of the thread's
        last call; that body alone, if that call has failed or the client says that it retries.
        """
        before = self._again(caller, digest)
        if before is None:
            index = self._next.get(caller.thread, 0) if caller.name else 0
            turn = Turn(caller.thread, index, 1, digest, caller.key)
        else:
            turn = Turn(caller.thread, before.index, before.attempt + 1, digest, caller.key)
        if caller.name:
            self._next[caller.thread] = turn.index + 1
            self._last[caller.thread] = turn
        if caller.key:
            self._keys[caller.thread, caller.key] = turn
        return turn, before

    def over(self, turn: Turn, failed: bool) -> None:
        """The attempt is over; one that has failed may come again."""
        turn.ticket, turn.failed = None, failed
        place = (turn.thread, turn.key)
        if not failed and self._keys.get(place) is turn:
            del self._keys[place]

    def forget(self, turn: Turn) -> None:
        """It will not come again."""
        place = (turn.thread, turn.key)
        if self._keys.get(place) is turn:
            del self._keys[place]

    def _again(self, caller: Caller, digest: int) -> Turn | None:
        if caller.key and (found := self._keys.get((caller.thread, caller.key))) is not None:
            return found
        last = self._last.get(caller.thread)
        if last is None or last.digest != digest:
            return None
        same = last.failed or caller.retried or (caller.key != "" and caller.key == last.key)
        return last if same else None

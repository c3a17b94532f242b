"""Prompts given as text: which of them share a front, to the character, and how many tokens that is.

All texts of a file go into one radix tree. An edge of it is a segment, so two prompts share
exactly the tokens of their common front, whoever sent them. The tree keeps every piece of text
once: a session that repeats its whole history in every prompt costs what is new in each.
"""

from __future__ import annotations

from collections.abc import Callable

from vocabulary import Segment
from workloads.keys import mix


class Place:
    """The end of an edge: ``text`` is the edge's, ``total`` the tokens from the root to here."""

    __slots__ = ("after", "ends", "number", "text", "total", "up")

    def __init__(self, up: Place | None, text: str, number: int) -> None:
        self.up = up
        self.text = text
        self.number = number
        self.after: dict[str, Place] = {}
        self.total = 0
        self.ends = False
        """Does a text end here, or do two only part?"""


class TextTree:
    """Texts by their fronts. ``key`` makes the segment ids its own."""

    def __init__(self, key: int) -> None:
        self.key = key
        self.root = Place(None, "", 0)
        self._made = 0

    def add(self, text: str) -> Place:
        """The place of a text; the same for equal texts."""
        node, at = self.root, 0
        while at < len(text):
            child = node.after.get(text[at])
            if child is None:
                child = self._place(node, text[at:])
                node.after[text[at]] = child
                child.ends = True
                return child
            same = _common(child.text, text, at)
            if same < len(child.text):
                child = self._split(child, same)
            node, at = child, at + same
        node.ends = True
        return node

    def measure(self, count: Callable[[str], int]) -> None:
        """Count the tokens of every text and of every shared front; call it after the last ``add``.

        A text to which nothing was added has exactly ``count`` tokens; a front that others go on
        from has no more than any of them. Where two texts part, the last token of their front is
        not taken to be shared: it may be a piece of a longer one.
        """
        stack: list[tuple[Place, str, bool]] = [(self.root, "", False)]
        while stack:
            node, front, done = stack.pop()
            if done:
                node.total = min([node.total, *(child.total for child in node.after.values())])
                continue
            text = front + node.text
            node.total = count(text) if node.ends else max(0, count(text) - 1)
            stack.append((node, "", True))
            stack.extend((child, text, False) for child in node.after.values())

    def segments(self, node: Place) -> tuple[Segment, ...]:
        """A measured text as segments; their lengths add up to its tokens."""
        found: list[Segment] = []
        while node.up is not None:
            if length := node.total - node.up.total:
                found.append((mix(self.key, node.number), length))
            node = node.up
        return tuple(reversed(found))

    def reply_id(self, prompt: Place, reply: Place) -> int | None:
        """The segment id of what follows ``prompt`` up to ``reply``, if that is one segment."""
        return mix(self.key, reply.number) if reply.up is prompt and reply.total > prompt.total else None

    def _place(self, up: Place, text: str) -> Place:
        self._made += 1
        return Place(up, text, self._made)

    def _split(self, child: Place, size: int) -> Place:
        """A new node after the first ``size`` characters of the edge to ``child``."""
        up = child.up
        assert up is not None
        middle = self._place(up, child.text[:size])
        up.after[child.text[0]] = middle
        child.text, child.up = child.text[size:], middle
        middle.after[child.text[0]] = child
        return middle


def _common(edge: str, text: str, at: int) -> int:
    """How many characters of ``edge`` stand in ``text`` from ``at`` on."""
    if text.startswith(edge, at):
        return len(edge)
    low, high = 0, min(len(edge), len(text) - at)
    while low < high:
        middle = (low + high + 1) // 2
        if text.startswith(edge[low:middle], at + low):
            low = middle
        else:
            high = middle - 1
    return low

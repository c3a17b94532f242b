"""A radix tree over prompts given as segments: how far two of them agree.

Nodes are pieces of one segment, (id, start, stop) in tokens; two prompts share
a path exactly as far as their (id, offset) pairs agree. Of what was inserted,
the parts that no later insertion touched go first (``trim``).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from vocabulary import Segment


class Node:
    """Tokens ``start`` to ``stop`` of segment ``id``, below ``above`` (None: the root)."""

    __slots__ = ("above", "children", "id", "start", "stop")

    def __init__(self, id: int, start: int, stop: int, above: Node | None) -> None:  # noqa: A002
        self.id = id
        self.start = start
        self.stop = stop
        self.above = above
        self.children: dict[tuple[int, int], Node] = {}


class PrefixTree:
    """``tokens``: what all nodes hold together."""

    def __init__(self) -> None:
        self.root = Node(0, 0, 0, None)
        self.tokens = 0
        self._leaves: OrderedDict[Node, None] = OrderedDict()  # the longest untouched first

    def match(self, prompt: Sequence[Segment]) -> int:
        """Leading tokens of ``prompt`` that are here."""
        node, matched = self.root, 0
        for segment, length in prompt:
            start = 0
            while start < length:
                child = node.children.get((segment, start))
                if child is None:
                    return matched
                taken = min(child.stop, length) - start
                matched += taken
                start += taken
                if start < child.stop:  # the segment ends inside the node: nothing can follow there
                    return matched
                node = child
        return matched

    def insert(self, prompt: Sequence[Segment]) -> Node:
        """Enter ``prompt``; the node it ends at."""
        node = self.root
        for segment, length in prompt:
            start = 0
            while start < length:
                child = node.children.get((segment, start))
                if child is None:
                    child = self._add(node, segment, start, length)
                elif child.stop > length:
                    child = self._split(child, length)
                node, start = child, child.stop
        if node in self._leaves:
            self._leaves.move_to_end(node)
        return node

    def trim(self, most: int) -> None:
        """Drop leaves, the longest untouched first, until at most ``most`` tokens are here."""
        while self.tokens > most and self._leaves:
            node, _ = self._leaves.popitem(last=False)
            parent = node.above
            assert parent is not None  # the root is no leaf
            del parent.children[node.id, node.start]
            self.tokens -= node.stop - node.start
            if not parent.children and parent.above is not None:
                self._leaves[parent] = None
                self._leaves.move_to_end(parent, last=False)

    def _add(self, above: Node, segment: int, start: int, stop: int) -> Node:
        node = above.children[segment, start] = Node(segment, start, stop, above)
        self.tokens += stop - start
        self._leaves.pop(above, None)
        self._leaves[node] = None
        return node

    def _split(self, node: Node, at: int) -> Node:
        """Cut ``node`` in two; it stays the lower part. The upper part."""
        above = node.above
        assert above is not None  # the root is empty and is never cut
        upper = above.children[node.id, node.start] = Node(node.id, node.start, at, above)
        node.start, node.above = at, upper
        upper.children[node.id, at] = node
        return upper

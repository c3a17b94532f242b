"""Depth first through the prefix tree, heaviest subtree first: SGLang's dfs-weight (schedule_policy.py).

The cached prefixes of the waiting calls form a tree; a node weighs as many
waiting calls as end in or below it. Calls that share a branch come one after
the other, so that it is used while it is there. From SGLang: the tree, the
weights, children before the node's own calls. Ours: equal weights, and calls
of one node, by arrival, and the fall-back to arrival order above 128 waiting
calls, which SGLang has for lpm only (most_waiting = inf switches it off).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from systems.prefix_tree import Node, PrefixTree
from systems.schedulers.cache_order import CacheOrder
from vocabulary import Segment


class DfsWeight(CacheOrder):
    """Depth first by weight over the cached prefixes; knobs of ``CacheOrder``."""

    name = "dfs-weight"

    def keys(self, prefixes: Mapping[int, Sequence[Segment]]) -> dict[int, float]:
        """Each call's place in the walk."""
        tree = PrefixTree()
        ends: dict[Node, list[int]] = {}
        for seq in sorted(prefixes):
            ends.setdefault(tree.insert(prefixes[seq]), []).append(seq)
        return {seq: float(place) for place, seq in enumerate(_walk(tree, ends))}


def _walk(tree: PrefixTree, ends: Mapping[Node, Sequence[int]]) -> list[int]:
    """The calls in order; no recursion, for a session's prefix is hundreds of nodes deep."""
    ranks = _ranks(tree, ends)
    found: list[int] = []
    todo = [(tree.root, False)]
    while todo:
        node, below_is_done = todo.pop()
        if below_is_done:
            found += ends.get(node, ())
            continue
        todo.append((node, True))
        children = sorted(node.children.values(), key=ranks.__getitem__, reverse=True)
        todo += [(child, False) for child in children]
    return found


def _ranks(tree: PrefixTree, ends: Mapping[Node, Sequence[int]]) -> dict[Node, tuple[int, int]]:
    """(minus the calls in and below, the first of them) of each node: smaller goes first."""
    nodes = [tree.root]
    for node in nodes:  # grows while it is read: parents before children
        nodes += node.children.values()
    ranks: dict[Node, tuple[int, int]] = {}
    for node in reversed(nodes):
        below = [ranks[child] for child in node.children.values()]
        own = ends.get(node, ())
        weight = len(own) - sum(rank[0] for rank in below)
        first = min([*own, *(rank[1] for rank in below)], default=0)
        ranks[node] = (-weight, first)
    return ranks


SCHEDULER = DfsWeight

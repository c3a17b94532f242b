"""Cache-aware routing: SGLang's router (sgl-router, policy cache_aware), approximate prefix trees.

The router cannot see the engines' caches; it remembers what it sent to each.
From SGLang: the tree per engine, the share of the prompt that must match, the
two thresholds of imbalance beyond which only load counts, and all defaults.
Ours: below the share the least loaded engine takes the call (older versions:
the one with the smallest tree), trees are trimmed at each insertion instead
of every two minutes, lengths are tokens (SGLang: tokens or characters), and a
dead engine's tree is dropped.
"""

from __future__ import annotations

from collections.abc import Sequence

from systems.prefix_tree import PrefixTree
from systems.routers.pins import alive, least_used
from vocabulary import INF, Call, EngineView


class CacheAware:
    """The engine that was sent most of the prompt, unless that is little or the load is uneven.

    cache_threshold: share of the prompt (0 to 1) that must match more than this. Default 0.3.
    balance_abs, balance_rel: the load (calls in the system) is uneven if
        largest - smallest > balance_abs and largest > balance_rel * smallest.
        Default 64 and 1.5.
    max_tokens: of each engine's tree; what was not used for longest goes first.
        Default 2**26.
    """

    name = "cache-aware"
    reads_prompt = True

    def __init__(
        self,
        *,
        cache_threshold: float = 0.3,
        balance_abs: float = 64,
        balance_rel: float = 1.5,
        max_tokens: int = 1 << 26,
    ) -> None:
        self.cache_threshold = _within("cache_threshold", cache_threshold, 1.0)
        self.balance_abs = _within("balance_abs", balance_abs, INF)
        self.balance_rel = _within("balance_rel", balance_rel, INF)
        if isinstance(max_tokens, bool) or not isinstance(max_tokens, int) or max_tokens < 1:
            raise ValueError(f"max_tokens must be a whole number of at least 1, got {max_tokens!r}")
        self.max_tokens = max_tokens
        self._trees: dict[int, PrefixTree] = {}

    def route(self, call: Call, engines: Sequence[EngineView], now: float) -> int:  # noqa: ARG002
        """The engine's id. Raises LookupError if none is alive, ValueError without the prompt."""
        if not call.prompt:
            raise ValueError(f"cache-aware needs the prompt of call {call.seq}, but the host did not fill it")
        living = alive(call, engines)
        for view in engines:
            if not view.alive:
                self._trees.pop(view.id, None)
        chosen = self._choose(call, living)
        tree = self._trees.setdefault(chosen, PrefixTree())
        tree.insert(call.prompt)
        tree.trim(self.max_tokens)
        return chosen

    def _choose(self, call: Call, living: Sequence[EngineView]) -> int:
        loads = [view.calls for view in living]
        uneven = max(loads) - min(loads) > self.balance_abs and max(loads) > self.balance_rel * min(loads)
        if uneven:
            return least_used(living)
        best = max(living, key=lambda view: (self._match(view.id, call), -view.calls, -view.id))
        tokens = sum(length for _, length in call.prompt)
        enough = self._match(best.id, call) > self.cache_threshold * tokens
        return best.id if enough else least_used(living)

    def _match(self, engine: int, call: Call) -> int:
        tree = self._trees.get(engine)
        return tree.match(call.prompt) if tree is not None else 0


def _within(name: str, value: object, most: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0.0 <= value <= most:
        limit = "at least 0" if most == INF else f"0 to {most:g}"
        raise ValueError(f"{name} must be a number, {limit}; got {value!r}")
    return float(value)


ROUTER = CacheAware

"""Who pauses where programs need more than there is: orders, and the subset that costs least.

A victim frees what is booked for it, and costs the prefill of its whole context when it comes back: tokens
to some power. ThunderAgent (its section on cost) has about 2 at a fixed chunk size; the latency tables say
1.1 to 1.4 (``benchmarks.recompute``).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence

from systems.gates.ledger import Program
from systems.routers.hashing import hashed

ORDERS = ("shortest", "longest", "random", "lru", "recompute", "optimal")
EXACT = 1_000
"""Most partial subsets kept; beyond that ``optimal`` is the cheaper of two greedy choices."""
WORTH = 64
"""Who frees less than one part in so many of its context, because decay has booked the rest free already, is
no victim: to stop a crowd of them for the last tokens would be no minimum."""
_Part = tuple[int, float, "_Chosen | None"]
_Chosen = tuple[Program, "_Chosen | None"]


def acting_first(
    order: str, programs: Sequence[Program], need: int, power: float, salt: int = 0
) -> list[Program]:
    """Victims among those that act; if they do not suffice, among those that reason, too.

    Acting ones are spared again where the reasoning ones free enough without them.
    """
    acting = [program for program in programs if program.acting]
    first = chosen(order, acting, need, power, salt)
    missing = need - sum(program.booked for program in first)
    if missing <= 0:
        return first
    reasoning = [program for program in programs if not program.acting]
    then = chosen(order, reasoning, missing, power, salt)
    return [*needed(first, sum(program.booked for program in then) - missing), *then]


def chosen(
    order: str, candidates: Sequence[Program], need: int, power: float, salt: int = 0
) -> list[Program]:
    """Victims that free ``need`` tokens together, or all who free any worth; ties by program id.

    ``random`` is a keyed hash of ``salt`` and the program, ``recompute`` takes who costs least per token
    freed (another order than ``shortest`` where decay weighs programs differently), ``lru`` who was heard of
    longest ago.
    """
    useful = [program for program in candidates if program.booked * WORTH > program.size]
    if order == "optimal":
        return cheapest(useful, need, power)
    return until(sorted(useful, key=key(order, power, salt)), need)


def key(order: str, power: float, salt: int) -> Callable[[Program], tuple[float, int]]:
    """What an order sorts by."""
    by: dict[str, Callable[[Program], float]] = {
        "shortest": lambda p: p.size,
        "longest": lambda p: -p.size,
        "random": lambda p: hashed(salt, p.id),
        "lru": lambda p: p.heard,
        "recompute": lambda p: p.size**power / p.booked,
    }
    rank = by[order]
    return lambda program: (rank(program), program.id)


def until(ordered: Sequence[Program], need: int) -> list[Program]:
    """The first so many that free ``need`` tokens together."""
    taken, freed = [], 0
    for program in ordered:
        if freed >= need:
            break
        taken.append(program)
        freed += program.booked
    return taken


def cheapest(candidates: Sequence[Program], need: int, power: float) -> list[Program]:
    """The subset of least cost that frees ``need`` tokens; all of them if they do not suffice.

    Exact by dynamic programming over (freed, cost) pairs none of which is beaten in both, as long as there
    are at most ``EXACT`` of them; else the cheaper of shortest-first and longest-first, each without those
    it does not need.
    """
    if sum(program.booked for program in candidates) <= need:
        return list(candidates)
    parts: list[_Part] = [(0, 0.0, None)]
    for program in sorted(candidates, key=lambda p: (p.size, p.id)):
        cost = float(program.size) ** power
        more: list[_Part] = [(min(need, f + program.booked), c + cost, (program, w)) for f, c, w in parts]
        parts = _undominated(parts, more)
        if len(parts) > EXACT:
            return _greedy(candidates, need, power)
    enough = parts[bisect_left(parts, need, key=lambda part: part[0])]
    return _unrolled(enough[2])


def _undominated(parts: list[_Part], more: list[_Part]) -> list[_Part]:
    """Both, in order of freed tokens, each costing less than any that frees as much or more."""
    kept: list[_Part] = []
    for part in sorted(parts + more, key=lambda p: (-p[0], p[1])):
        if not kept or part[1] < kept[-1][1]:
            kept.append(part)
    kept.reverse()
    return kept


def _unrolled(chain: _Chosen | None) -> list[Program]:
    taken = []
    while chain is not None:
        program, chain = chain
        taken.append(program)
    taken.reverse()
    return taken


def _greedy(candidates: Sequence[Program], need: int, power: float) -> list[Program]:
    tries = []
    for order in ("shortest", "longest"):
        taken = until(sorted(candidates, key=key(order, power, 0)), need)
        tries.append(needed(taken, sum(program.booked for program in taken) - need))
    return min(tries, key=lambda taken: sum(float(program.size) ** power for program in taken))


def needed(taken: Sequence[Program], spare: int) -> list[Program]:
    """Without those whose tokens are spare, the largest first; in the order they came."""
    kept = set()
    for program in sorted(taken, key=lambda p: (-p.size, p.id)):
        if program.booked <= spare:
            spare -= program.booked
        else:
            kept.add(program.id)
    return [program for program in taken if program.id in kept]

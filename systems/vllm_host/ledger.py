"""Who is in the batch and what steps cost them, without touching every call in every step.

A call that decodes one token in every step gains the same as all others that
do: it is *steady*, and only totals are kept for it (Account.settle). A step
handles one by one the calls that enter, leave, compute a prompt or use up a
quantum. Imports nothing of vLLM.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from itertools import count
from math import nextafter
from operator import attrgetter

from systems.vllm_host.accounts import Account, Scheduled
from vocabulary import GRID, INF, Slot

_SLACK = 8
"""Entries per call in the batch before stale ones are swept out."""
Rank = tuple[int, float, int, int, Account]
"""(-level, -key, -seq, number of the entry, account)."""


@dataclass(slots=True, eq=False)
class InFlight:
    """A step from ``schedule`` to ``update_from_output``.

    ``parts`` are charged one by one; ``joined`` are steady from this step on, ``left`` were until the one
    before. ``batch``: all parts in vLLM's order, where somebody asks for them, else as ``parts``.
    ``preempted``: call numbers, ``preempted_ids`` vLLM's names of them. ``load``: (calls in vLLM's running
    list, other calls), after the step was scheduled. ``kv_used`` blocks were in use then, and ``evicted``
    calls had been preempted for want of blocks since the start. These two and ``preempted_ids`` are there
    only where steps are logged.
    """

    start: float
    computes: bool
    left: list[Account]
    parts: list[Scheduled] = field(default_factory=list)
    joined: list[Account] = field(default_factory=list)
    batch: list[Scheduled] = field(default_factory=list)
    preempted: tuple[int, ...] = ()
    preempted_ids: tuple[str, ...] = ()
    load: tuple[int, int] = (0, 0)
    kv_used: int = 0
    evicted: int = 0


class Ledger:
    """The batch of one engine. ``unit``: how the policy counts service (step, s or token).

    ``steps`` and ``seconds`` are the totals of all steps charged so far. Under async scheduling a step is
    scheduled before the one in front of it is charged: who is steady changes with ``schedule``, the charges
    follow in the order of the steps.
    """

    def __init__(self, unit: str) -> None:
        self.unit = unit
        self.steps = 0
        self.seconds = 0.0
        self.renewed: list[Account] = []
        self._steady: dict[str, Account] = {}
        self._left: list[Account] = []
        self._levels: Counter[int] = Counter()
        self._ranks: list[Rank] = []  # a heap, worst first; stale entries stay
        self._entries = count()
        self._most_ranks = _SLACK
        self._places = count(1)
        self._limits: list[tuple[float, int, Slot, Account]] = []
        self._ties = count()

    # The batch

    def enter(self, account: Account) -> None:
        """It is in the batch from now on, as the last."""
        account.place = next(self._places)
        self._levels[account.slot.level] += 1
        self._rank(account)

    def exit(self, request_id: str, account: Account) -> None:
        """It is about to leave the batch, or to be over."""
        if account.in_batch:
            self._drop_level(account.slot.level)
        self._leave(request_id)

    def renew(self, account: Account, slot: Slot) -> None:
        """Its quantum was used up: it goes on in ``slot``."""
        self._drop_level(account.slot.level)
        self._levels[slot.level] += 1
        account.expire(slot)
        self.renewed.append(account)
        self._rank(account)
        self._watch(account)

    def forget_renewals(self) -> None:
        """The boundary is over."""
        for account in self.renewed:
            account.renewed = False
        self.renewed.clear()

    def outranked(self, order: tuple[int, float, int]) -> bool:
        """Whether a waiting call of this order outranks one in the batch (docs/engine.md)."""
        worst = max(self._levels, default=-1)
        if order[0] != worst:
            return order[0] < worst
        return any(a.in_batch and a.slot.level == worst and a.order > order for a in self.renewed)

    def worst(self) -> Account | None:
        """Who is displaced first: of the largest level; there those renewed now, then the last in order."""
        ranks = self._ranks
        while ranks and not _counts(ranks[0]):
            heappop(ranks)
        if not ranks:
            return None
        last = ranks[0][-1]
        renewed = [a for a in self.renewed if a.in_batch and a.slot.level == last.slot.level]
        return max(renewed, key=attrgetter("order"), default=last) if renewed else last

    @property
    def steady(self) -> Mapping[str, Account]:
        """Those that decoded one token in the last step and have not left the batch since, by request id."""
        return self._steady

    def _rank(self, account: Account) -> None:
        level, key, seq = account.order
        entry = account.entry = next(self._entries)
        heappush(self._ranks, (-level, -key, -seq, entry, account))
        if len(self._ranks) > self._most_ranks:
            self._ranks = [rank for rank in self._ranks if _counts(rank)]
            heapify(self._ranks)
            self._most_ranks = _SLACK * (1 + len(self._ranks))

    def _drop_level(self, level: int) -> None:
        self._levels[level] -= 1
        if not self._levels[level]:
            del self._levels[level]

    # A step

    def begin(self, start: float, tokens: Mapping[str, int], total: int) -> tuple[InFlight, Sequence[str]]:
        """A step of ``tokens`` by request id, ``total`` in all, was scheduled at ``start``.

        Returns it and those in it that are not steady, in its order.
        """
        steady, others = self._steady, list[str]()
        if len(tokens) != len(steady) or not tokens.keys() >= steady.keys():
            others = [n for n in tokens if n not in steady]
        if len(tokens) - len(others) < len(steady):
            for name in [n for n in steady if n not in tokens]:
                self._leave(name)
        if total - sum(tokens[n] for n in others) != len(steady):  # drafts: more than a token each
            for name in [n for n in steady if tokens[n] != 1]:
                self._leave(name)
            others = [n for n in tokens if n not in steady]
        left, self._left = self._left, []
        return InFlight(start, bool(tokens), left), others

    def add(self, step: InFlight, part: Scheduled) -> None:
        """A part of the step by a call that was not steady; it is from here on if it decodes one token."""
        account = part.account
        if part.admission or part.tokens != 1 or not part.emits:
            step.parts.append(part)
            if part.emits:
                account.fresh = False
        else:
            step.joined.append(account)
            self._steady[part.request.request_id] = account

    def charge(self, step: InFlight, seconds: float, now: float) -> None:
        """The oldest step not yet charged took ``seconds`` and ended at ``now``."""
        for account in step.left:
            account.settle()
            account.since = None
        if not step.computes:
            return
        for account in step.joined:
            if not account.closed:
                account.since = (self.steps, self.seconds)
                self._watch(account)
        self.steps += 1
        self.seconds += seconds
        for part in step.parts:
            if not part.account.closed:  # it left while the step ran
                part.account.charge(part, seconds, now)

    def _leave(self, request_id: str) -> None:
        account = self._steady.pop(request_id, None)
        if account is not None:
            self._left.append(account)

    # Quanta

    def expired(self, step: InFlight) -> list[Account]:
        """Calls in the batch whose quantum is used up after ``step``, in the batch's order."""
        found = {}
        for part in step.parts:
            if part.account.in_batch and part.account.quantum_used:
                found[part.account.place] = part.account
        total, limits = self._total(), self._limits
        while limits and limits[0][0] <= total:
            _, _, slot, account = heappop(limits)
            if account.slot is not slot or account.since is None or not account.in_batch:
                continue
            account.settle()
            if account.quantum_used:
                found[account.place] = account
            else:
                self._watch(account)
        return [found[place] for place in sorted(found)]

    def _watch(self, account: Account) -> None:
        """Look again once the totals have grown by what is left of its quantum.

        Half a grid step early, since a quantum need not lie on the grid: ``expired`` compares exactly.
        """
        if account.since is None or account.slot.quantum == INF:
            return
        left = account.slot.quantum - account.since_slot
        total = self._total()
        limit = max(total + left - GRID / 2, nextafter(total, INF))
        heappush(self._limits, (limit, next(self._ties), account.slot, account))

    def _total(self) -> float:
        return self.seconds if self.unit == "s" else float(self.steps)


def _counts(rank: Rank) -> bool:
    account = rank[-1]
    return account.in_batch and account.entry == rank[3]

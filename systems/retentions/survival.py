"""Keep or evict as a priced decision (ours): what keeping displaces against what coming back would cost.

    J_keep(u) = price * blocks * E[min(T, u)] + P(T > u) * J_evict,    J_evict = p_return * rebuild

T is how long the thread stays away, under the survival curve of its tool; ``rebuild`` what the engine
loses while it computes the context again, in block-seconds: its seconds times the engine's blocks. KV is
kept until the u that costs least. The price is the engine's own: what the threads that are away and the
calls that wait bid for a block-second, marked where they no longer fit beside the calls that run. Where kept
KV yields to whoever lacks blocks, keeping costs nothing before that: then the price is asked at the shortage,
and the lowest bids go. docs/retention.md derives all of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from systems.knobs import at_least, flag, one_of
from systems.protocols import Away, Kept
from systems.retentions.absences import Absence
from systems.retentions.curve import SHAPES, Curve, Known, decaying
from systems.retentions.durations import Durations, Group
from systems.retentions.market import Bid, Meter, clearing_price
from systems.retentions.rebuild import TOKEN2_S, TOKEN_S, Rebuild
from systems.retentions.watching import Prices, Watching
from systems.shared_prefix import SharedPrefix
from vocabulary import INF, blocks_for

ARMS = ("elapsed", "tool", "tool+size", "oracle")
PRICES = ("shortage", "market")
WORK = 1.0
"""What a waiting call bids for a block-second: it would work in it, and prices are shares of such work."""
LEADING = 512
"""Segments of a prompt that are compared: a gateway's have 16 tokens."""
Name = tuple[int, str]
"""Program and thread."""
ALL: Group = ()
"""The group that every time away belongs to."""


class Stake:
    """What is known of one absence when it begins; costs in block-seconds of the engine.

    ``blocks`` are its own, ``capacity`` the engine's. ``rebuild``: what computing the context again costs,
    ``at_stake``: times the chance that the thread comes back. ``paid``: what a block had cost when it left,
    ``billed``: when it was back, or its program over.
    """

    __slots__ = ("at_stake", "billed", "blocks", "capacity", "chance", "curve", "paid", "rebuild")

    def __init__(
        self, curve: Curve, chance: float, seconds: float, blocks: int, capacity: int, paid: float
    ) -> None:
        self.curve, self.chance, self.capacity = curve, chance, capacity
        self.resize(seconds, blocks)
        self.paid = self.billed = paid

    def resize(self, seconds: float, blocks: int) -> None:
        """So long it takes to compute again what only this context has, and so many blocks that is."""
        self.blocks = blocks
        self.rebuild = seconds * self.capacity
        self.at_stake = self.chance * self.rebuild

    def bid(self, age: float) -> float:
        """The highest price of a block-second at which going on is worth it, ``age`` s after leaving."""
        return self.curve.worth(age) * self.at_stake / self.blocks

    def stop(self, price: float) -> float:
        """The age (s) at which keeping is given up."""
        return self.curve.stop(price * self.blocks / self.at_stake) if self.at_stake else 0.0

    def cost(self, age: float, price: float) -> float:
        """J_keep: kept until ``age``, and computed again if it is not back by then."""
        if age == INF:  # only where keeping costs nothing
            return 0.0
        return price * self.blocks * self.curve.held(age) + self.at_stake * self.curve.share(age)


class Survival(Watching):
    """Kept until the time at which going on costs more than it saves.

    ``by``: what the time away is told from. ``tool`` (default): the tool's own curve; ``elapsed``: one curve
    for all; ``tool+size``: the tool's and the length of the reply that called it, in powers of 4 tokens;
    ``oracle``: it is known. A group with fewer than ``least`` returns (default 20) goes by the next wider
    one, all tools at the last; with fewer of all, worth falls with the time away as ``decay`` says
    (exponential, linear, none) with ``half_life`` (default 1 s: ThunderAgent's); ``least = inf``: always.
    ``window``: so many times away are remembered per group (default 512), the newest.
    ``firm`` (default): newcomers wait for what is kept (systems.protocols.Keeping), so that keeping costs
    what they would do meanwhile. Nothing is then kept longer than any thread was seen to stay away.
    ``price``: when it is asked. ``market`` (default where firm): when the thread leaves, at the price of that
    moment. ``shortage`` (default, and possible only, where not firm): when somebody lacks blocks. All is kept
    until then, and the lowest bids go, so that those stay for whom J_keep at the price of that moment is
    below J_evict. Engines that give up what is kept without asking for ``victims`` need ``market``.
    ``waiting``: how much of the prompts that wait counts as wanted room (default 1).
    ``shared_prefix`` (default): what contexts begin with alike takes room once (none where calls run: it is
    taken to be theirs), and only the rest of a context is at stake; without it each counts whole.
    ``token_s``, ``token2_s``, ``restore_s``: ``Rebuild``; default an 8B model on an A100.
    All constants are ours but ThunderAgent's half-life.
    """

    name = "survival"

    def __init__(
        self, *, by: str = "tool", least: float = 20, window: int = 512, decay: str = "exponential",
        half_life: float = 1.0, firm: bool = True, price: str = "", waiting: float = 1.0,
        shared_prefix: bool = True, token_s: float = TOKEN_S, token2_s: float = TOKEN2_S,
        restore_s: float = 0.0,
    ) -> None:  # fmt: skip
        super().__init__()
        self.by = one_of("by", by, ARMS)
        self.clairvoyant = self.by == "oracle"
        self.least = at_least("least", least, 1.0)
        if isinstance(window, bool) or not isinstance(window, int) or window < 1:
            raise ValueError(f"window must be a whole number of at least 1, got {window!r}")
        self.window = window
        self.decay = one_of("decay", decay, SHAPES)
        self.half_life = at_least("half_life", half_life, 0.0)
        if not 0.0 < self.half_life < INF:
            raise ValueError(f"half_life must be above 0 and finite, got {half_life!r}")
        self.firm = flag("firm", firm)
        self.price = one_of("price", price or ("market" if self.firm else "shortage"), PRICES)
        if self.firm and self.price == "shortage":
            raise ValueError("price=shortage keeps without end, and newcomers wait: it needs firm=false")
        self.waiting = at_least("waiting", waiting, 0.0)
        self.shared_prefix = self.reads_prompt = flag("shared_prefix", shared_prefix)
        self._shared = SharedPrefix[Name]()
        self._rebuild = Rebuild(token_s, token2_s, restore_s)
        self.token_s, self.token2_s, self.restore_s = token_s, token2_s, restore_s
        self._durations = Durations(self.window, self.least)
        self._unknown = decaying(self.half_life, self.decay)
        self._meters: dict[int, Meter] = {}
        self._stakes: dict[Absence, Stake] = {}

    # -- deciding --------------------------------------------------------------------

    def verdict(self, absence: Absence, now: float) -> tuple[float, Prices]:
        """The time that costs least at the price of now, or for ever; J of keeping and of evicting.

        J of keeping, where evicting costs least: until it is back, as far as the curve goes.
        """
        if self.shared_prefix:
            away, name = absence.away, _name(absence.away)
            self._shares(self._shared.join(name, away.prompt[:LEADING], away.engine))
            absence.share(self._shared.left_out(name))
        stake = self._stakes[absence] = self._stake(absence, now)
        price = self._price(absence.away.engine, now)
        age = stake.stop(price)
        prices = stake.cost(age or stake.curve.ages[-1], price), stake.at_stake
        if self.firm:
            age = min(age, stake.curve.ages[-1])
        return (INF if self.price == "shortage" else now + age), prices

    def victims(self, candidates: Sequence[Kept], now: float) -> Sequence[Kept]:
        """Lowest bid for a block-second first: what loses least. Who is back and waits goes last."""
        self._notice(candidates, now)
        return sorted(candidates, key=lambda kept: (self._bid(kept, now), kept.program, kept.thread))

    def _notice(self, candidates: Sequence[Kept], now: float) -> None:
        """What should be kept on the candidates' engine and is not among them has been given up."""
        there = {(kept.program, kept.thread) for kept in candidates}
        found = (self.absences.get(*key) for key in there)
        engines = {absence.away.engine for absence in found if absence is not None}
        for absence in self.absences:
            away = absence.away
            if away.engine in engines and (away.program, away.thread) not in there:
                absence.until = min(absence.until, now)

    def _bid(self, kept: Kept, now: float) -> float:
        absence = self.absences.get(kept.program, kept.thread)
        if absence is None:
            return 0.0
        return INF if absence.returned < INF else self._bids(absence, now)

    def _bids(self, absence: Absence, now: float) -> float:
        return self._stakes[absence].bid(max(0.0, now - absence.since))

    def _price(self, engine: int, now: float) -> float:
        """The engine's price from now on: 0 while all that is away or waits fits beside what runs.

        Where what is kept is not firm, who waits takes what it wants, whatever is bid.
        """
        view, waiting_tokens = self.seen(engine)
        price = 0.0
        if view is not None:
            self._expire(now)
            away = [a for a in self.absences if a.away.engine == engine and _wants(a, now)]
            room: float = view.kv_total - view.kv_used
            if not view.running:  # else it is taken to be theirs, too, and in ``kv_used``
                room -= blocks_for(self._shared.once.get(engine, 0))
            wanted = self.waiting * blocks_for(waiting_tokens)
            if not self.firm:
                room -= wanted
            if sum(absence.blocks for absence in away) + self.firm * wanted > room:
                bids: list[Bid] = [(self._bids(a, now), a.blocks) for a in away]
                price = clearing_price(room, [*bids, (WORK, wanted)] if self.firm else bids)
        self._meters[engine].set(price, now)
        return price

    def _expire(self, now: float) -> None:
        """What is not kept any more shares nothing; who is back shares until the book is told how it went."""
        for absence in self.absences:
            if absence.returned == INF and absence.until <= now and absence.since < now:
                self._shares(self._shared.part(_name(absence.away)))

    def _shares(self, names: set[Name]) -> None:
        """More or less of these contexts is others', too: what is at stake changes."""
        for name in names:
            absence = self.absences.get(*name)
            if absence is not None and (stake := self._stakes.get(absence)) is not None:
                absence.share(self._shared.left_out(name))
                stake.resize(self._rebuild.tail(absence.away.tokens, absence.own), absence.blocks)

    def _stake(self, absence: Absence, now: float) -> Stake:
        engine = absence.away.engine
        curve, chance = self._curve(absence.away, now)
        view, _ = self.seen(engine)
        seconds = self._rebuild.tail(absence.away.tokens, absence.own)
        paid = self._meters.setdefault(engine, Meter()).total(now)
        return Stake(curve, chance, seconds, absence.blocks, 1 if view is None else view.kv_total, paid)

    # -- learning --------------------------------------------------------------------

    def _curve(self, away: Away, now: float) -> tuple[Curve, float]:
        if self.clairvoyant and away.duration is not None:
            return Known(away.duration), 1.0

        def still_away(group: Group) -> Iterable[float]:
            others = (a for a in self.absences if a.returned == INF and a.since < now)
            return (now - a.since for a in others if group in self._groups(a.away))

        return self._durations.curve(self._groups(away), still_away) or (self._unknown, 1.0)

    def _groups(self, away: Away) -> tuple[Group, ...]:
        """The narrowest first."""
        if self.by == "elapsed":
            return (ALL,)
        if self.by == "tool+size":
            return ((away.tool, (away.output_tokens.bit_length() + 1) // 2), (away.tool,), ALL)
        return ((away.tool,), ALL)

    def learn(self, absence: Absence, seconds: float, returned: bool) -> None:
        """It counts for its groups; what a block has cost until now is what keeping it would have."""
        self._durations.add(self._groups(absence.away), seconds, returned)
        meter = self._meters[absence.away.engine]
        self._stakes[absence].billed = meter.total(absence.since + seconds)

    # -- afterwards ------------------------------------------------------------------

    def outcome(self, absence: Absence, lost: int, now: float) -> tuple[Prices, float]:
        """What keeping until ``now`` and computing all again cost at the prices there were, and the regret.

        Regret: what was paid more than for the cheaper of the two. A price counts at its mean over the
        absence; what an engine gave up early counts as kept until ``until``, since nobody says when.
        """
        stake = self._stakes[absence]
        whole = stake.blocks * (stake.billed - stake.paid)
        spell, kept = now - absence.since, max(0.0, min(now, absence.until) - absence.since)
        held = whole * kept / spell if spell > 0.0 else 0.0
        if absence.returned == INF:
            return (whole, 0.0), held
        again = self._rebuild.tail(absence.away.tokens, lost) * stake.capacity
        return (whole, stake.rebuild), max(0.0, held + again - min(whole, stake.rebuild))

    def forget(self, absence: Absence) -> None:
        """Its stake goes with it."""
        self._stakes.pop(absence, None)
        self._shares(self._shared.part(_name(absence.away)))


def _name(away: Away) -> Name:
    return away.program, away.thread


def _wants(absence: Absence, now: float) -> bool:
    """It is away and kept, as far as is known, or has just left: then it is about to be decided."""
    return absence.returned == INF and (absence.until > now or absence.since == now)


RETENTION = Survival

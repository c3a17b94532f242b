"""Recount the simulated engine's blocks from its tree, its queue and its calls, and its host memory."""

from __future__ import annotations

from collections import Counter

from systems.engines.options import OptionEngine
from systems.engines.radix import Held, RadixKV, Run
from systems.engines.request import HELD
from systems.engines.retaining import Retaining
from systems.engines.sim import SimEngine
from vocabulary import blocks_for


def idle_in_queue(kv: RadixKV) -> list[Run]:
    """Runs in the free queue, evicted first; both directions must agree."""
    forward, run = [], kv.queue.next
    while run is not kv.queue:
        forward.append(run)
        run = run.next
    backward, run = [], kv.queue.prev
    while run is not kv.queue:
        backward.append(run)
        run = run.prev
    assert forward == backward[::-1], "the free queue is torn"
    return forward


def in_tree(kv: RadixKV) -> list[Run]:
    """Every cached run that a look-up or a twin can reach."""
    found: dict[int, Run] = {}
    homes = [kv.root]
    while homes:
        for key, run in homes.pop().items():
            assert run.key == key, "a run is filed under another content"
            for twin in run.twins or [run]:
                found[id(twin)] = twin
            homes.append(run.children)
    return [run for run in found.values() if not run.dead]


def held_by(request: object) -> list[Run]:
    """The runs a call holds."""
    return held_through(request.chain)  # type: ignore[attr-defined]


def held_through(chain: list[Held]) -> list[Run]:
    """The runs of a chain, upper parts of split ones included."""
    runs = []
    for run, start in chain:
        piece = run
        while True:
            runs.append(piece)
            if piece.start <= start:
                break
            piece = piece.above
    return runs


def recount(engine: SimEngine) -> None:
    """Raises AssertionError if a block is lost, counted twice or shared wrongly."""
    kv = engine.kv
    holders = [*engine.running.values(), *(r for r in engine.calls.values() if r.state == HELD)]
    users = Counter(id(run) for request in holders for run in held_by(request))
    runs = in_tree(kv)
    assert all(run.refs == users[id(run)] for run in runs), "a user count is wrong"
    assert len(users.keys() - {id(run) for run in runs}) == 0, "a call holds an evicted run"
    queue, pins = idle_in_queue(kv), recount_pins(engine, runs)
    idle = {id(run) for run in runs if not run.refs and id(run) not in pins}
    assert {id(run) for run in queue} == idle, "idle and not queued"
    kept = sum(run.n for run in runs if not run.refs and id(run) in pins)
    assert kv.idle == sum(run.n for run in queue) + kept, "idle blocks miscounted"
    assert getattr(kv, "kept", 0) == kept, "kept blocks miscounted"
    private = 0
    for request in holders:
        tokens = request.tokens + engine.g - request.g0 - 1 if request.decoding else request.computed
        private += blocks_for(tokens) - (request.tree if kv.caching else 0)
    shared = sum(run.n for run in runs if run.refs)
    assert kv.plain + kv.idle + shared + private == kv.total, "a block is lost or in two places"
    if kv.caching:
        for request in holders:
            assert request.tree == sum(run.n for run in held_by(request)), (
                "a call holds other blocks than it cached"
            )
    if isinstance(engine, OptionEngine):
        recount_host(engine)


def recount_pins(engine: SimEngine, runs: list[Run]) -> Counter[int]:
    """How many pins hold each run. Raises AssertionError if the engine counts otherwise."""
    pins: Counter[int] = Counter()
    if isinstance(engine, Retaining):
        for pin in engine.keeping.pins.values():
            pins.update(id(run) for run in held_through(pin.chain))
        assert pins == Counter({id(run): n for run, n in engine.kv.pins.items()}), "a pin is lost"
        assert pins.keys() <= {id(run) for run in runs}, "what is kept was evicted"
    return pins


def recount_host(engine: OptionEngine) -> None:
    """Raises AssertionError if a copy or a block of the tier is lost."""
    host = engine.host
    assert host.used == sum(blocks_for(request.copy) for request in engine.calls.values()), "a copy is lost"
    assert host.used + len(host.tier) <= host.room, "more blocks than host memory has"
    assert host.entered == host.fetched + len(host.tier) + host.dropped, "a block of the tier is lost"
    assert all(not request.copy for request in engine.running.values()), "a running call has a copy"

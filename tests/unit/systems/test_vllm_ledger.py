"""Books and queues of the vLLM host without vLLM: what is added up lazily is what one by one would give."""

from random import Random
from types import SimpleNamespace

import pytest

from systems.vllm_host.accounts import Account, Scheduled
from systems.vllm_host.ledger import Ledger
from systems.vllm_host.queues import OrderedQueue, Queues
from vocabulary import GRID, INF, Call, Finished, Slot


class Eager(Ledger):
    """Nobody is steady: every part is charged by itself."""

    def add(self, step, part):
        step.parts.append(part)
        if part.emits:
            part.account.fresh = False


def play(kind, unit, seed):
    """Calls enter, decode, skip steps, leave and come back; quanta expire.

    Returns (rows, service since the slot, expiries by step).
    """
    rng, ledger = Random(seed), kind(unit)
    accounts = {
        str(seq): Account(Finished(Call(seq, seq, "", 0, 9), 0, 0.0), slot(rng, unit), ledger)
        for seq in range(12)
    }
    expired, now = [], 0.0
    for _ in range(120):
        for name, account in accounts.items():
            if rng.random() < 0.05 and account.in_batch:
                ledger.exit(name, account)
                account.leave("preempt", now)
        ledger.forget_renewals()
        tokens = {
            n: 1 for n, a in accounts.items() if (a.in_batch or rng.random() < 0.1) and rng.random() < 0.9
        }
        enters = [n for n in tokens if not accounts[n].in_batch]
        tokens.update(dict.fromkeys(enters, 5))
        step, others = ledger.begin(now, tokens, sum(tokens.values()))
        for name in others:
            account = accounts[name]
            if name in enters:
                account.admit(0, now)
                ledger.enter(account)
            admission = account.admissions if account.fresh else 0
            request = SimpleNamespace(request_id=name)
            ledger.add(step, Scheduled(request, account, 0, tokens[name], True, admission))
        seconds = rng.randrange(1, 1 << 24) * GRID
        now += seconds
        ledger.charge(step, seconds, now)
        due = ledger.expired(step) if tokens else []
        for account in due:
            ledger.renew(account, slot(rng, unit))
        expired.append([account.call.seq for account in due])
        worst = ledger.worst()
        assert worst is None or worst.in_batch
    for account in accounts.values():
        account.settle()
    rows = [account.row for account in accounts.values()]
    left = [account.since_slot for account in accounts.values()]
    return [(r.steps, r.served, r.decode_s, r.prefill_s) for r in rows], left, expired


def slot(rng, unit):
    """Quanta of a few steps (of 8 ms in the mean), off the time grid."""
    quantum = rng.choice([2.5, 4.0, 0.03, 11.0, INF])
    return Slot(rng.randrange(3), rng.random(), quantum / 128.3 if unit == "s" else quantum)


@pytest.mark.parametrize("unit", ["step", "s", "token"])
@pytest.mark.parametrize("seed", range(8))
def test_totals_charge_what_one_by_one_would(unit, seed):
    lazy, eager = play(Ledger, unit, seed), play(Eager, unit, seed)
    assert lazy == eager
    assert sum(map(len, lazy[2])) > 10


def test_worst_is_the_last_of_the_worst_level_renewed_ones_first():
    ledger = Ledger("step")
    made = [Account(Finished(Call(i, i, "", 0, 9), 0, 0.0), Slot(i // 2, float(i)), ledger) for i in range(4)]
    assert ledger.worst() is None
    assert not ledger.outranked((0, 0.0, 9))
    for account in made:
        account.admit(0, 0.0)
        ledger.enter(account)
    assert ledger.worst() is made[3]
    assert ledger.outranked((0, 9.0, 9))
    assert not ledger.outranked((1, 0.0, 9))
    ledger.renew(made[2], Slot(1, 2.5))
    assert ledger.worst() is made[2]
    assert ledger.outranked((1, 2.4, 9))
    assert not ledger.outranked((1, 2.6, 9))
    ledger.forget_renewals()
    assert ledger.worst() is made[3]


class Request:
    def __init__(self, *priority):
        self.priority = priority


def test_the_queue_is_in_order_whatever_leaves_and_returns():
    rng, queue, model = Random(1), OrderedQueue(), set()
    pool = [Request(rng.randrange(3), rng.random(), seq) for seq in range(40)]
    for _ in range(2000):
        request = rng.choice(pool)
        if request in model:
            if rng.random() < 0.5:
                queue.remove_request(request)
                model.remove(request)
                request.priority = (rng.randrange(3), rng.random(), request.priority[2])
            else:
                first = queue.peek_request()
                assert first is min(model, key=lambda r: r.priority)
                assert queue.pop_request() is first
                model.remove(first)
        else:
            rng.choice([queue.add_request, queue.prepend_request, lambda r: queue.prepend_requests([r])])(
                request
            )
            model.add(request)
        assert (len(queue), bool(queue)) == (len(model), bool(model))
    assert list(queue) == sorted(model, key=lambda r: r.priority)
    queue.remove_requests(pool)
    with pytest.raises(IndexError):
        queue.peek_request()
    with pytest.raises(KeyError):
        queue.remove_request(pool[0])


def test_a_queue_that_is_never_emptied_forgets_who_was_taken_out():
    """Under lasting overload the last in order are never looked at."""
    queue, staying = OrderedQueue(), [Request(0, 0.0, seq) for seq in range(5)]
    for request in staying:
        queue.add_request(request)
    for seq in range(5, 1000):
        moved = Request(7, float(seq), seq)
        queue.add_request(moved)
        queue.remove_request(moved)
        assert len(queue._heap) <= 2 * (2 + len(queue))
    assert list(queue) == staying


def test_a_batch_forgets_places_that_calls_have_left():
    ledger = Ledger("step")
    calls = [Account(Finished(Call(i, i, "", 0, 9), 0, 0.0), Slot(0, float(i)), ledger) for i in range(9)]
    for turn in range(300):
        account = calls[turn % 9]
        if account.in_batch:
            ledger.exit(str(account.call.seq), account)
            account.leave("preempt", 0.0)
        account.admit(0, 0.0)
        ledger.enter(account)
        assert len(ledger._ranks) <= 8 * 10
        assert ledger.worst() is max((a for a in calls if a.in_batch), key=lambda a: a.order)


def test_two_queues_are_one():
    scheduler = SimpleNamespace(waiting=None, skipped_waiting=None)
    queues = Queues(scheduler)
    assert queues.first() is None
    one, two = Request(1, 0.0, 1), Request(0, 0.0, 2)
    scheduler.waiting.add_request(one)
    scheduler.skipped_waiting.add_request(two)
    assert queues.first() is two
    queues.remove({two})
    assert list(queues) == [one]

"""Which pins are given up, and how many blocks only pins hold, over a block pool of a few lines."""

from dataclasses import dataclass, field
from random import Random
from types import SimpleNamespace

import pytest

from systems.vllm_host.keeper import Keeper
from vocabulary import BLOCK, INF, Call


@dataclass(eq=False)
class Block:
    block_id: int
    ref_cnt: int = 0
    block_hash: object = None
    is_null: bool = False


class Pool:
    """As vLLM's: references, and a queue of blocks without any."""

    hash_block_size = BLOCK

    def __init__(self, size):
        self.blocks = [Block(i) for i in range(size)]
        self.queue = list(self.blocks)

    def get_num_free_blocks(self):
        return len(self.queue)

    def touch(self, blocks):
        for block in blocks:
            if not block.ref_cnt:
                self.queue.remove(block)
            block.ref_cnt += 1

    def free_blocks(self, blocks):
        for block in blocks:
            block.ref_cnt -= 1
            if not block.ref_cnt:
                self.queue.append(block)

    def new(self, count):
        made, self.queue = self.queue[:count], self.queue[count:]
        for block in made:
            block.ref_cnt, block.block_hash = 1, object()
        return made


@dataclass(eq=False)
class Request:
    request_id: int
    blocks: list = field(default_factory=list)
    call: Call | None = None

    @property
    def num_tokens(self):
        return len(self.blocks) * BLOCK


class Manager:
    """A call asks for blocks; ``tried``: how often it was asked."""

    def __init__(self, size):
        self.block_pool = Pool(size)
        self.empty_kv_cache_blocks = SimpleNamespace(blocks=((),))
        self.requests, self.tried = {}, 0

    def get_blocks(self, name):
        return SimpleNamespace(blocks=(self.requests[name].blocks,))

    def allocate_slots(self, request, tokens, new_computed_blocks=None, full_sequence_must_fit=False):
        self.tried += 1
        hits = list(new_computed_blocks or ())
        fresh = tokens // BLOCK - len(hits)
        if fresh + sum(not b.ref_cnt for b in hits) > self.block_pool.get_num_free_blocks():
            return None
        self.requests[request.request_id] = request
        self.block_pool.touch(hits)
        request.blocks += [*hits, *self.block_pool.new(fresh)]
        return request.blocks

    def free(self, request):
        self.block_pool.free_blocks(reversed(self.requests.pop(request.request_id).blocks))


class World:
    """A keeper, and calls that come and go."""

    def __init__(self, size=20, victims=None, firm=False):
        self.now, self.manager, self.calls = 0.0, Manager(size), 0
        self.pool = self.manager.block_pool
        self.least = None  # what the keeper is told that a call needs at least; None: the truth
        self.runs = True
        self.waiting = []
        self.keeper = Keeper(
            self.manager, lambda: self.now, lambda r: r.wants, lambda r, tokens: self.floor(tokens), victims,
            firm=firm, waits=lambda request: request.call, runs=lambda: self.runs,
            waiting=lambda: self.waiting,
        )  # fmt: skip

    def floor(self, tokens):
        return tokens // BLOCK if self.least is None else self.least

    def admit(self, blocks, hits=None, program=-1):
        """Of a call for so many blocks, hits among them; None if it has to wait."""
        request = Request(self.calls)
        request.call = Call(self.calls, program, "", 0, blocks * BLOCK)
        request.wants = blocks - sum(self.keeper.held_by_calls(b) for b in hits or ())
        self.calls += 1
        found = self.manager.allocate_slots(
            request, blocks * BLOCK, new_computed_blocks=hits or [], full_sequence_must_fit=True
        )
        request.call = None
        return None if found is None else request

    def grow(self, request, blocks):
        return self.manager.allocate_slots(request, blocks * BLOCK) is not None

    def leave(self, request, program, retain_s=100.0):
        call = Call(request.request_id, program, "", 0, 1)
        self.keeper.leave(call, request)
        self.manager.free(request)
        self.keeper.settle(call, self.now + retain_s)

    def leaves(self, program, blocks, retain_s=100.0):
        """A call of ``program`` comes, and leaves so many blocks."""
        self.leave(self.admit(blocks), program, retain_s)

    def kept(self):
        return {program for program, _ in self.keeper.pins}


def reluctant(candidates, now):
    """Names only programs of an odd number, one of them twice, and one that is not there."""
    odd = [one for one in candidates if one.program % 2]
    return [*odd[:1], *odd, *[one._replace(program=99) for one in odd]]


def silent(candidates, now):
    """Names nobody."""
    return []


@pytest.mark.parametrize("victims", [None, reluctant, silent])
def test_all_pins_are_given_up_before_a_call_waits_whatever_the_policy_names(victims):
    world = World(20, victims)
    for program in range(5):
        world.leaves(program, 4, retain_s=100.0 - program)
    assert world.pool.get_num_free_blocks() == 0
    assert world.admit(20) is not None
    assert world.keeper.count["given_up"] == 5


def test_pins_a_policy_left_out_come_last_by_their_deadlines():
    world = World(20, reluctant)
    for program in range(5):
        world.leaves(program, 4, retain_s=100.0 - program)
    order = []
    for _ in range(5):
        before = world.kept()
        assert world.admit(4) is not None
        order += before - world.kept()
    assert order == [1, 3, 4, 2, 0]


def test_a_newcomer_gets_nothing_of_what_is_firmly_kept_while_somebody_runs():
    world = World(20, firm=True)
    for program in (1, 2):
        world.leaves(program, 8)
    assert world.admit(6) is None
    assert world.admit(4) is not None
    world.runs = False
    assert world.admit(6) is not None
    assert world.kept() == {2}


def test_who_runs_or_is_kept_takes_what_is_firmly_kept_for_others_first():
    """Program 1's own time is up first; the call needs more than what is kept for program 2, at the end."""
    world = World(20, firm=True)
    for program, seconds in ((1, 10.0), (2, 20.0), (3, 30.0)):
        world.leaves(program, 5, seconds)
    running = world.admit(4)
    assert world.grow(running, 2)
    assert world.kept() == {2, 3}
    world.leaves(1, 4, 5.0)
    mine = world.keeper.pins[1, ""].blocks
    assert world.admit(9, hits=mine[:2], program=1) is not None
    assert world.kept() == {1}
    assert world.admit(4, program=1) is not None
    assert world.kept() == set()


def test_a_policy_is_asked_once_until_the_clock_or_a_pin_changes_its_mind():
    asked = []

    def counted(candidates, now):
        asked.append(len(candidates))
        return candidates

    world = World(20, counted)
    for program in range(5):
        world.leaves(program, 4)
    calls = [world.admit(4), world.admit(4)]
    assert asked == [5]
    world.keeper.expire()  # a step begins
    calls.append(world.admit(4))
    assert asked == [5, 3]
    world.leave(calls[0], 7)
    assert world.admit(4) is not None
    assert asked == [5, 3, 3]


@pytest.mark.parametrize("told", [None, 0], ids=["seen at once", "found out by trying"])
def test_a_running_call_that_cannot_grow_takes_nothing(told):
    """It is preempted with pins as without; they may serve later."""
    world = World(20)
    running = world.admit(10)
    for program in range(2):
        world.leaves(program, 4)
    world.least, world.manager.tried = told, 0
    assert not world.grow(running, 11)
    assert world.kept() == {0, 1}
    assert world.keeper.count["given_up"] == 0
    assert world.keeper.reclaimable() == 8
    assert world.manager.tried == (1 if told is None else 3)
    assert world.grow(running, 10)
    assert (world.kept(), world.keeper.count["given_up"]) == (set(), 2)


def test_who_waits_at_the_head_has_its_own_past_the_deadline():
    """Programs 1 and 2 were kept until 5 s; a newcomer is before 2, then the client of 1 leaves."""
    world = World()
    for program in (1, 2):
        world.leaves(program, 4, retain_s=5.0)
    world.now = 5.0
    world.waiting = [((0, 3.0, 9), (2, "")), ((0, 1.0, 7), (1, "")), ((0, 2.0, 8), (3, ""))]
    world.keeper.expire()
    assert (world.kept(), world.keeper.count["expired"]) == ({1}, 1)
    world.waiting = []
    world.keeper.expire()
    assert (world.kept(), world.keeper.count["expired"]) == (set(), 2)


def test_pins_that_were_put_back_still_expire_and_serve():
    world = World(20)
    running = world.admit(10)
    world.leaves(0, 4, retain_s=10.0)
    world.leaves(1, 4, retain_s=20.0)
    world.least = 0
    assert not world.grow(running, 11)
    world.now = 15.0
    world.keeper.expire()
    assert (world.kept(), world.keeper.count["expired"]) == ({1}, 1)
    pin = world.keeper.pins[1, ""]
    again = world.admit(6, hits=pin.blocks)
    world.keeper.admitted(Call(9, 1, "", 1, 1), again, cached=64)
    assert world.keeper.count["hits"] == 1
    assert world.keeper.count["pinned"] == 2


def test_where_calls_share_all_that_is_kept_nothing_is_tried():
    world = World(20)
    world.leaves(0, 8)
    sharing = world.admit(10, hits=world.keeper.pins[0, ""].blocks)
    world.manager.tried = 0
    assert world.keeper.reclaimable() == 0
    assert not world.grow(sharing, 11)
    assert (world.manager.tried, world.kept()) == (1, {0})


def test_the_count_of_what_only_pins_hold_is_what_counting_gives():
    """Random calls that share, replace and lose pins; all is counted again after each."""
    rng = Random(5)
    world = World(60, silent)
    keeper, here, seen = world.keeper, [], set()
    for _ in range(3000):
        what, program = rng.random(), rng.randrange(6)
        if what < 0.4:
            pin = keeper.pins.get((program, ""))
            hits = pin.blocks[: rng.randint(0, len(pin.blocks))] if pin and rng.random() < 0.7 else []
            call = world.admit(len(hits) + rng.randint(1, 9), hits)
            here += [(call, program)] if call else []
        elif what < 0.7 and here:
            call, program = here.pop(rng.randrange(len(here)))
            world.leave(call, program, rng.choice([0.0, 3.0, INF]))
        elif what < 0.8:
            keeper.retain(program, world.now + rng.random() * 4, rng.randrange(3))
        elif what < 0.9:
            rng.choice([keeper.release, keeper.end])(program)
        else:
            world.now += rng.random()
            keeper.expire()
        owners = {}
        for pin in keeper.pins.values():
            for block in pin.blocks:
                owners[block.block_id] = owners.get(block.block_id, 0) + 1
        only = sum(world.pool.blocks[i].ref_cnt == n for i, n in owners.items())
        assert (keeper.reclaimable(), keeper.pinned_blocks()) == (only, len(owners))
        seen.add((only, len(owners)))
    assert len(seen) > 100
    for call, _ in here:
        world.manager.free(call)
    keeper.clear()
    assert (keeper.reclaimable(), world.pool.get_num_free_blocks()) == (0, 60)

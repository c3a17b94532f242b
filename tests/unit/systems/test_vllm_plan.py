"""What a plan asks of its host: each look into the prefix cache goes through a whole prompt."""

from dataclasses import dataclass, field
from typing import Any

import pytest

from systems.vllm_host.plan import Plan


@dataclass
class Request:
    request_id: str
    priority: tuple
    num_tokens: int = 16
    is_prefill_chunk: bool = False


@dataclass
class Host:
    """Calls of one block; who is displaced frees it."""

    running: list
    queues: list
    free: int
    max_num_running_reqs: int
    max_num_scheduled_tokens: int = 1000
    held: dict = field(default_factory=dict)
    looked_up: list = field(default_factory=list)
    displaced: list = field(default_factory=list)
    asked: int = 0
    retained: Any = None

    def free_blocks(self):
        return self.free

    def worst(self):
        self.asked += 1
        return max(self.running, key=lambda r: r.priority, default=None)

    def wants_more(self):
        return []

    def tokens_left(self, request):
        return 1

    def blocks_needed(self, request):
        self.looked_up.append(request.request_id)
        return 1, 0

    def renewed(self, request):
        return False

    def may_be_admitted(self, request):
        return True

    def displace(self, request):
        self.running.remove(request)
        self.displaced.append(request.request_id)
        self.free += 1


def calls(name, level, count):
    return [Request(f"{name}{i}", (level, float(i), i)) for i in range(count)]


def test_a_call_that_only_lacks_a_place_is_looked_up_once():
    host = Host(calls("low", 3, 4), calls("high", 0, 2), free=9, max_num_running_reqs=4)
    Plan(host).run()
    assert host.displaced == ["low3", "low2"]
    assert host.looked_up == ["high0", "high1"]
    assert host.asked == 3  # at the start, and after each that left


def test_a_call_that_lacks_blocks_is_looked_up_after_each_victim():
    host = Host(calls("low", 3, 4), calls("high", 0, 1), free=-1, max_num_running_reqs=9)
    Plan(host).run()
    assert host.displaced == ["low3", "low2"]
    assert host.looked_up == ["high0"] * 3


class Guard:
    """What is kept stops all but the first call while more than ``most`` run."""

    firm = True

    def __init__(self, host, most):
        self.host, self.most, self.promised = host, most, []

    def barred(self, request, promised):
        self.promised.append(promised)
        return len(self.host.running) > self.most

    def lacking(self, request):
        return 3


@pytest.mark.parametrize(("firm", "displaced"), [(True, ["low3", "low2"]), (False, [])])
def test_a_call_that_what_is_kept_stops_displaces_until_it_does_not(firm, displaced):
    """What the first one takes is promised to it when the second is looked at."""
    host = Host(calls("low", 3, 4), calls("high", 0, 2), free=9, max_num_running_reqs=9)
    host.retained = guard = Guard(host, 2)
    guard.firm = firm
    Plan(host).run()
    assert host.displaced == displaced
    assert guard.promised == ([0, 0, 0, 3] if firm else [])


def test_who_outranks_nobody_is_not_looked_up():
    host = Host(calls("low", 3, 4), calls("lower", 4, 2), free=0, max_num_running_reqs=4)
    Plan(host).run()
    assert (host.looked_up, host.displaced) == ([], [])

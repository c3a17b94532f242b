"""What a retention policy inside vLLM is told, and what it thinks; no vLLM, a block pool of a few lines."""

import json
from math import inf, nan
from types import SimpleNamespace

import pytest

from systems.protocols import Away
from systems.vllm_host.options import HostOptions
from systems.vllm_host.retention import Retained
from tests.unit.systems.test_vllm_keeper import Manager, Request
from vocabulary import BLOCK, Call, EngineView, KeepEvent


class Told:
    """Keeps everything for ten seconds and notes what it hears."""

    name = "told"
    watches = True

    def __init__(self):
        self.heard, self.events = [], []

    def look(self, view, waiting_tokens, now):
        self.heard.append(("look", view, waiting_tokens))

    def idle(self, away, now):
        self.heard.append(("idle", away, now))
        self.events.append(
            KeepEvent(now, away.program, away.thread, "keep", away.tool, away.tokens, inf, 1.0, 2.0, nan)
        )
        return now + 10.0

    def called(self, *said):
        self.heard.append(("called", *said))

    def back(self, *said):
        self.heard.append(("back", *said))

    def end(self, *said):
        self.heard.append(("end", *said))

    def victims(self, kept, now):
        return kept


class Host:
    """What ``Retained`` asks of our scheduler class."""

    def __init__(self, **options):
        self.time, self.kv_cache_manager = 5.0, Manager(20)
        self.kv_cache_manager.block_pool.num_gpu_blocks = 21
        self.now, self.held, self.running = (lambda: self.time), {}, [None]
        self.accounts, self.queues, self.blocked = {}, [], set()
        self.options = HostOptions(retention=f"{__name__}:Told", engine=3, **options)

    def free_blocks(self):
        return self.kv_cache_manager.block_pool.get_num_free_blocks()

    def may_be_admitted(self, request):
        return request.request_id not in self.blocked

    def blocks_needed(self, request):
        return request.num_tokens // BLOCK, 0

    def growth(self, request, tokens):
        return tokens // BLOCK


def ended(host, retained, program=1, blocks=4, thread="0", **extra):
    """A call of the thread is admitted and ends."""
    request = Request(f"{program}.{thread}")
    host.kv_cache_manager.allocate_slots(request, blocks * BLOCK)
    request.num_output_tokens = 9
    request.sampling_params = SimpleNamespace(extra_args=extra)
    call = Call(0, program, thread, 0, blocks * BLOCK - 8)
    retained.keeper.leave(call, request)
    host.kv_cache_manager.free(request)
    retained.left(call, request)
    return request


def test_a_policy_is_told_in_order_who_is_away_and_who_is_back():
    host = Host()
    waiting, running = (SimpleNamespace(call=Call(i, 7, "", 0, 100), in_batch=i > 0) for i in range(2))
    host.accounts = {"waiting": waiting, "running": running}
    retained = Retained(host)
    heard = retained.policy.heard
    ended(host, retained, tool="bash")
    view = EngineView(3, True, 2, 0, 20, 1)
    away = Away(1, "0", 4 * BLOCK + 1, "bash", 9, 3)
    assert heard == [("look", view, 100), ("idle", away, 5.0)]
    assert retained.keeper.pinned_blocks() == 4
    heard.clear()
    host.time = 8.0
    again, other = Call(1, 1, "0", 1, 90), Call(2, 1, "1", 0, 90)
    retained.asked(other)
    retained.asked(again)
    pin = retained.keeper.pins[1, "0"]
    request = Request("again")
    host.kv_cache_manager.allocate_slots(request, 6 * BLOCK, new_computed_blocks=pin.blocks)
    retained.admitted(again, request, cached=64)
    retained.end(1)
    retained.asked(again)
    assert heard == [("called", 1, "0", 8.0), ("back", 1, "0", 64, 90, 8.0), ("end", 1, 8.0)]
    assert retained.keeper.count["hits"] == 1
    assert retained.keeper.pinned_blocks() == 0


def test_the_later_of_what_the_policy_and_the_client_want():
    for seconds, until in ((60.0, 65.0), (2.0, 15.0), ("nonsense", 15.0)):
        host = Host()
        retained = Retained(host)
        ended(host, retained, retain_s=seconds)
        assert retained.keeper.pins[1, "0"].about.until == until


def test_a_program_that_ended_with_its_call_is_not_away():
    host = Host()
    retained = Retained(host)
    request = Request("last")
    host.kv_cache_manager.allocate_slots(request, 4 * BLOCK)
    call = Call(0, 1, "0", 0, 4 * BLOCK)
    retained.keeper.leave(call, request)
    retained.end(1)
    retained.left(call, request)
    assert retained.policy.heard == [("end", 1, 5.0)]
    assert retained.keeper.pins == {}


def test_what_a_policy_thinks_goes_to_the_file_or_away(tmp_path):
    path = tmp_path / "kept.jsonl"
    for options in ({}, {"kept": str(path)}):
        host = Host(**options)
        retained = Retained(host)
        ended(host, retained, tool="bash")
        assert retained.policy.events == []
        retained.close()
        retained.close()
    (line,) = map(json.loads, path.read_text().splitlines())
    assert line == {
        "time": 5.0, "program": 1, "thread": "0", "what": "keep", "tool": "bash", "tokens": 4 * BLOCK + 1,
        "until": None, "keep_price": 1.0, "evict_price": 2.0, "regret": None,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("policy", "option", "firm"), [(True, False, True), (False, True, True), (False, False, False)]
)
def test_newcomers_wait_if_the_policy_says_so_or_the_server_is_told(monkeypatch, policy, option, firm):
    """Twelve of twenty blocks are kept, for two threads; eight are left, and four of the kept are a hit."""
    monkeypatch.setattr(Told, "firm", policy, raising=False)
    host = Host(firm=option)
    retained = Retained(host)
    for program in (1, 2):
        ended(host, retained, program, 6)
    found = list(retained.keeper.pins[1, "0"].blocks[:4])
    host.kv_cache_manager.get_computed_blocks = lambda request: (SimpleNamespace(blocks=(found,)), 64)
    host.block_size = BLOCK
    newcomer, again = (SimpleNamespace(request_id=name, num_tokens=12 * BLOCK) for name in ("new", "old"))
    for request, program in ((newcomer, 3), (again, 1)):
        call = Call(program, program, "0", 0, 192)
        host.accounts[request.request_id] = SimpleNamespace(call=call, in_batch=False)
    assert retained.firm == firm
    assert retained.lacking(newcomer) == 8
    assert [retained.barred(newcomer, promised) for promised in (0, 1)] == [False, firm]
    assert not retained.barred(again, 99)
    host.running.clear()
    assert not retained.barred(newcomer, 1)


@pytest.mark.parametrize(("blocked", "kept"), [("", False), ("new", True), ("old", False), ("both", False)])
def test_past_its_deadline_only_the_head_of_those_that_may_be_admitted_has_what_is_kept(blocked, kept):
    """What vLLM blocks and passes over (a grammar compiles) neither keeps its own nor costs others theirs."""
    host = Host()
    retained = Retained(host)
    ended(host, retained)
    for order, (name, program) in enumerate((("new", 2), ("old", 1))):
        call = Call(order, program, "0", 0, 90)
        host.accounts[name] = SimpleNamespace(call=call, in_batch=False, order=(0, float(order), order))
        host.queues.append(SimpleNamespace(request_id=name))
    host.blocked = {"new", "old"} if blocked == "both" else {blocked}
    host.time = 500.0
    retained.keeper.expire()
    assert bool(retained.keeper.pins) == kept


@pytest.mark.parametrize("name", ["pin", "continuum-fixed", "continuum-ttl", "survival"])
def test_the_policies_of_the_folder_run_in_a_server(name):
    options = HostOptions(retention=name)
    assert options.keeps
    assert options.build_retention().name == name


def test_knobs_of_a_policy_are_checked():
    assert HostOptions(retention="pin", retention_knobs={"seconds": 3.0}).build_retention().seconds == 3.0
    with pytest.raises(
        ValueError, match=r"additional-config: unknown pin knob 'second'\. Did you mean seconds"
    ):
        HostOptions(retention="pin", retention_knobs={"second": 3.0}).build_retention()


def test_an_unknown_policy_is_refused_with_the_nearest():
    with pytest.raises(ValueError, match=r"unknown retention 'survivals'\. Did you mean survival"):
        HostOptions(retention="survivals")


class Oracle(Told):
    name = "oracle"
    clairvoyant = True


def test_a_policy_that_must_know_how_long_tools_take_is_refused():
    with pytest.raises(ValueError, match="Oracle needs to know how long tools take"):
        HostOptions(retention=f"{__name__}:Oracle").build_retention()


@pytest.mark.parametrize(("name", "keeps"), [("none", False), ("lru", False), ("control", True)])
def test_where_nobody_or_only_clients_decide_there_is_no_policy(name, keeps):
    options = HostOptions(retention=name)
    assert options.keeps is keeps
    assert options.build_retention() is None

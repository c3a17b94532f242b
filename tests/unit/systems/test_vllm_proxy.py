"""What of the vLLM host runs without vLLM: errors of the proxy, messages, books, options, who calls."""

import io
import pickle
import sys
from pathlib import Path

import pytest

from systems.catalog import CatalogError
from systems.engines.vllm_server import ServerOptions, VllmServer
from systems.engines.vllm_virtual import EngineUnavailable, VllmVirtualEngine, vllm_python
from systems.schedulers.fcfs import Fcfs
from systems.vllm_host.accounts import Account, Scheduled
from systems.vllm_host.callers import Callers
from systems.vllm_host.ledger import Ledger
from systems.vllm_host.options import HostOptions
from systems.vllm_host.plan import HoldPlan, Plan, growth
from systems.vllm_host.wire import receive, send
from tests.latency_models import ConstantLatency
from vocabulary import INF, Call, EngineConfig, Finished, Slot, Snapshot, Usage

CONFIG = EngineConfig(10, 2, 64, 256)


# The proxy


def test_without_the_environment_it_says_what_to_run(monkeypatch, tmp_path):
    monkeypatch.setenv("BENCH_VLLM_PYTHON", str(tmp_path / "python"))
    with pytest.raises(EngineUnavailable, match=r"engine vllm-virtual needs vLLM.*run `make vllm-cpu`"):
        VllmVirtualEngine(0, CONFIG, Fcfs(), ConstantLatency())
    with pytest.raises(EngineUnavailable, match="a vLLM server needs vLLM"):
        VllmServer(ServerOptions(tmp_path), tmp_path).begin()


def test_the_environment_of_the_variable_is_used(monkeypatch):
    monkeypatch.setenv("BENCH_VLLM_PYTHON", sys.executable)
    assert vllm_python() == Path(sys.executable)


def test_a_python_without_vllm_is_a_clear_error():
    with pytest.raises(EngineUnavailable, match=r"No module named .*rebuild it with `make vllm-cpu`"):
        VllmVirtualEngine(0, CONFIG, Fcfs(), ConstantLatency(), python=Path(sys.executable))


def test_a_file_that_is_no_program_is_a_clear_error(tmp_path):
    (tmp_path / "python").write_text("not a program")
    with pytest.raises(EngineUnavailable, match="cannot run"):
        VllmVirtualEngine(0, CONFIG, Fcfs(), ConstantLatency(), python=tmp_path / "python")


def test_messages_arrive_whole_or_not_at_all():
    pipe = io.BytesIO()
    send(pipe, ("submit", (1, "two")))
    data = pipe.getvalue()
    assert pickle.loads(receive(io.BytesIO(data))) == ("submit", (1, "two"))
    for cut in (0, 3, len(data) - 1):
        with pytest.raises(EOFError):
            receive(io.BytesIO(data[:cut]))


# Books


def account(unit="step"):
    return Account(Finished(Call(7, 0, "", 0, 40), 0, 2.0, level=1), Slot(1, 0.0, 3.0), Ledger(unit))


def part(books, tokens, emits, admission=0):
    return Scheduled(None, books, 0, tokens, emits, admission)


@pytest.mark.parametrize(("unit", "served"), [("step", 4.0), ("s", 3.0), ("token", 83.0)])
def test_a_call_is_charged_by_phase_and_unit(unit, served):
    books = account(unit)
    books.admit(16, 3.0)
    books.charge(part(books, 24, True, 1), 1.0, 4.0)  # prefill, first token
    books.charge(part(books, 1, True), 0.5, 4.5)  # decode
    books.leave("preempt", 4.5)
    assert books.usage(6.5).wait_s == 3.0
    books.admit(0, 6.5)
    books.charge(part(books, 42, False, 2), 1.0, 7.5)  # re-prefill in two chunks
    books.charge(part(books, 16, True, 2), 0.5, 8.0)
    assert books.close(3, False, 8.0) == Usage(served, 3.0, 3.0)
    row = books.row
    assert (row.prefill_s, row.decode_s, row.reprefill_s) == (1.0, 0.5, 1.5)
    assert (row.prefill_tokens, row.reprefill_tokens, row.cached_tokens) == (24, 58, 16)
    assert (row.t_first_sched, row.t_first_token, row.t_end, row.steps) == (3.0, 4.0, 8.0, 4)
    assert [what for _, what in books.waits] == ["admit", "preempt", "admit", "end"]


def test_a_quantum_is_counted_from_its_slot():
    books = account()
    books.admit(0, 2.0)
    for _ in range(3):
        assert not books.quantum_used
        books.charge(part(books, 1, True), 1.0, 3.0)
    assert books.quantum_used
    books.expire(Slot(2, 5.0, 1.0))
    assert (books.quantum_used, books.renewed, books.row.demotions, books.order) == (
        False,
        True,
        1,
        (2, 5.0, 7),
    )
    books.promote(Slot(0, 6.0, INF))
    assert (books.row.promotions, books.row.level) == (1, 0)


def test_the_call_log_is_json():
    line = account().as_dict("cmpl-1")
    assert line["request_id"] == "cmpl-1"
    assert line["t_first_token"] is None


# A server's requests


def test_requests_are_calls_of_their_program():
    callers = Callers()
    first, snap, alone = callers.identify(
        {"program_id": "a", "thread_id": "x", "service": 3, "wait": 1.5}, 10
    )
    second, _, _ = callers.identify({"program_id": "a", "thread_id": "x"}, 20)
    other, _, _ = callers.identify({"program_id": "b"}, 5)
    assert (first.seq, second.seq, other.seq) == (0, 1, 2)
    assert (first.program, first.thread, first.index) == (second.program, "x", 0)
    assert (second.index, second.prompt_tokens) == (1, 20)
    assert other.program != first.program
    assert (snap, alone) == (Snapshot(3.0, 1.5), False)


def test_a_request_without_a_program_is_one_of_its_own():
    callers = Callers()
    (first, snap, alone), (second, _, _) = (callers.identify({}, 1) for _ in range(2))
    assert first.program != second.program
    assert (snap, alone) == (Snapshot(), True)


@pytest.mark.parametrize("bad", ["much", None, [1], float("nan")])
def test_a_clients_bad_number_does_not_stop_the_server(bad):
    assert Callers().identify({"program_id": 1, "service": bad}, 1)[1] == Snapshot()


def test_options_come_from_additional_config(tmp_path):
    log = tmp_path / "calls.jsonl"
    options = HostOptions.parse(
        {"scheduler": "plas", "knobs": {"beta": 2}, "preemption": "hold", "log": str(log)}
    )
    assert options.build_scheduler().beta == 2.0
    options.open_log().close()
    assert log.exists()


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"sheduler": "plas"}, "unknown key 'sheduler'"),
        ({"preemption": "swap"}, "recompute, hold, got 'swap'"),
        ({"scheduler": "palas"}, "palas"),
        ({"knobs": {"betta": 1}}, "betta"),
    ],
)
def test_bad_options_are_named(config, message):
    with pytest.raises((ValueError, CatalogError), match=message):
        HostOptions.parse(config).build_scheduler()


# Plans, on a host without vLLM


class Request:
    def __init__(self, seq, level, tokens=32, computed=0, partial=False):
        self.request_id = str(seq)
        self.priority = (level, float(seq), seq)
        self.num_tokens = tokens
        self.num_computed_tokens = computed
        self.is_prefill_chunk = partial


class Host:
    """Blocks are counted; nothing is cached. Records what a plan did."""

    def __init__(self, running=(), waiting=(), held=(), blocks=10, slots=2, budget=64, renewed=()):
        self.running = list(running)
        self.waiting = list(waiting)
        self.held = {r.request_id: r for r in held}
        self.blocks = blocks
        self.max_num_running_reqs = slots
        self.max_num_scheduled_tokens = budget
        self.names = set(renewed)
        self.did = []
        self.retained = None

    @property
    def queues(self):
        return sorted(self.waiting, key=lambda r: r.priority)

    def free_blocks(self):
        return self.blocks - sum(self.own(r) for r in (*self.running, *self.held.values()))

    def own(self, request):
        return growth(0, request.num_computed_tokens, 0)

    def worst(self):
        def rank(request):
            level, key, seq = request.priority
            return level, self.renewed(request), key, seq

        return max(self.running, key=rank, default=None)

    def wants_more(self):
        return self.running

    def tokens_left(self, request):
        return request.num_tokens - request.num_computed_tokens

    def blocks_needed(self, request):
        return growth(0, request.num_tokens, 0), 0

    def growth(self, request, tokens):
        return growth(request.num_computed_tokens, tokens, self.own(request))

    def renewed(self, request):
        return request.request_id in self.names

    def may_be_admitted(self, request):
        return True

    def displace(self, request):
        self.running.remove(request)
        self.waiting.append(request)
        request.num_computed_tokens = 0
        self.did.append(("displace", request.request_id))

    def hold(self, request):
        self.running.remove(request)
        self.held[request.request_id] = request
        self.did.append(("hold", request.request_id))

    def resume(self, request):
        self.running.append(self.held.pop(request.request_id))
        self.did.append(("resume", request.request_id))

    def evict(self, request):
        del self.held[request.request_id]
        self.waiting.append(request)
        request.num_computed_tokens = 0
        self.did.append(("evict", request.request_id))


def decode(seq, level, tokens=33):
    return Request(seq, level, tokens, tokens - 1)


@pytest.mark.parametrize(
    ("waiting", "renewed", "did"),
    [
        (0, (), [("displace", "2")]),
        (1, (), []),
        (1, ("2",), [("displace", "2")]),
        (1, ("1",), []),
    ],
    ids=["better level", "same level", "behind it, renewed", "before it, renewed"],
)
def test_who_displaces_whom(waiting, renewed, did):
    running = [decode(1, 0 if renewed == ("1",) else 1), decode(2, 1)]
    host = Host(running, [Request(1.5, waiting)], renewed=renewed)
    Plan(host).run()
    assert host.did == did


def test_only_as_many_as_the_newcomer_needs():
    running = [decode(seq, 2) for seq in range(3)]  # 2 blocks each, of 10
    host = Host(running, [Request(9, 0, tokens=96)], slots=4)
    Plan(host).run()
    assert host.did == [("displace", "2")]


def test_a_newcomer_takes_the_tokens_of_a_worse_prefill():
    host = Host([Request(1, 2, tokens=100, computed=32, partial=True)], [Request(5, 1)], slots=4, blocks=40)
    Plan(host).run()
    assert host.did == [("displace", "1")]


def test_hold_keeps_kv_and_gives_it_back():
    long, short = decode(1, 1), Request(2, 0)
    host = Host([long], [short], slots=1)
    HoldPlan(host).run()
    assert host.did == [("hold", "1")]
    later = Host([], [], held=[long], slots=1)
    HoldPlan(later).run()
    assert later.did == [("resume", "1")]


def test_a_held_call_waits_its_turn():
    host = Host([], [Request(2, 0)], held=[decode(1, 1)], slots=1)
    HoldPlan(host).run()
    assert host.did == []  # the only slot is promised to the better one


def test_held_kv_is_taken_worst_first_and_only_if_needed():
    held = [decode(seq, 1) for seq in (1, 2, 3)]  # 2 blocks each, 4 free
    host = Host([], [Request(9, 0, tokens=16 * 7)], held=held, slots=1)
    HoldPlan(host).run()
    assert host.did == [("evict", "3"), ("evict", "2")]


def test_running_calls_grow_into_held_kv():
    host = Host([decode(1, 0)], [], held=[decode(2, 1), decode(3, 1)], blocks=6, slots=1)
    HoldPlan(host).run()
    assert host.did == [("evict", "3")]

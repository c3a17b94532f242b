"""A gateway in a storm: workers die and hang, clients drop; its books stay right and nothing is left."""

import random

import pytest

from benchmarks.gateway_faults import on_fakes
from benchmarks.gateway_parts.plan import FAULTS, Books, Plan, Verdict
from benchmarks.gateway_parts.processes import fill
from benchmarks.gateway_parts.streams import request_of, text_of, unchunked


def test_a_short_storm(tmp_path):
    plan = Plan(seed=3, seconds=2.0, agents=8, every_s=0.7, linger=False)
    verdict = on_fakes(plan, tmp_path)
    assert verdict.ok, "\n".join(verdict.lines())
    assert len(verdict.checks) == 18


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_long_storm(tmp_path, seed):
    verdict = on_fakes(Plan(seed=seed, seconds=20.0, agents=24, workers=3), tmp_path)
    assert verdict.ok, "\n".join(verdict.lines())


def test_a_plan_follows_from_its_seed_and_has_every_fault_in_time():
    plan = Plan(seed=5, seconds=60.0)
    assert plan.faults() == Plan(seed=5, seconds=60.0).faults()
    assert plan.faults() != Plan(seed=6, seconds=60.0).faults()
    assert plan.faults()[0].kind == "kill"
    assert {fault.kind for fault in plan.faults()} == set(FAULTS)
    assert {fault.worker for fault in plan.faults()} == {0, 1}


def books(**changes):
    same = {"names": frozenset("ab"), "calls": 3, "table_names": frozenset("ab"), "table_reasoning": 2}
    same |= {"table_calls": 3, "metric_reasoning": 2, "metric_calls": 3}
    return Books(**(same | changes))


def test_books_agree_only_if_all_of_them_do():
    assert books().agree()
    assert books(names=None).agree()
    assert books(gate_reasoning=2).agree()
    for change in (
        {"names": frozenset("ac")}, {"calls": 2}, {"table_names": frozenset("a")}, {"table_reasoning": 3},
        {"table_calls": 4}, {"metric_reasoning": 1}, {"metric_calls": 2}, {"gate_reasoning": 1},
    ):  # fmt: skip
        assert not books(**change).agree(), change


def test_a_verdict_without_checks_is_none():
    verdict = Verdict()
    assert not verdict.ok
    verdict.check("one", True, "seen")
    assert verdict.ok
    verdict.check("two", False, "not seen")
    assert not verdict.ok
    assert verdict.lines() == ["ok     one: seen", "FAILED two: not seen"]


def test_a_router_beside_gets_its_places_or_vllm_routers_flags():
    assert fill(["r", "-p={port}", "{url}", "{metrics}"], 1, "http://e", 2) == ["r", "-p=1", "http://e", "2"]
    words = fill(["vllm-router", "--policy", "x"], 7, "http://e", 8)
    assert words[3:] == [
        "--host", "127.0.0.1", "--port", "7", "--worker-urls", "http://e", "--prometheus-port", "8",
    ]  # fmt: skip


def test_bodies_have_the_size_that_was_asked_for():
    request = request_of("p", 32, 30_000)
    assert 30_000 < len(request) < 36_000
    assert b'"program_id":"p"' in request
    assert b"X-Session-ID: p\r\n" in request
    assert len(text_of(777, 1)) == 777
    assert text_of(500, 1) == text_of(500, 1) != text_of(500, 2)


def test_a_chunked_reply_comes_back_however_it_was_cut():
    draw, body = random.Random(1), b"data: one\n\ndata: [DONE]\n\n"
    for _ in range(20):
        rest, chunks = body, b""
        while rest:
            size = draw.randint(1, 9)
            chunks += b"%x\r\n%s\r\n" % (len(rest[:size]), rest[:size])
            rest = rest[size:]
        assert unchunked(b"HTTP/1.1 200 OK\r\n\r\n" + chunks + b"0\r\n\r\n") == body
        assert body.startswith(unchunked(b"HTTP/1.1 200 OK\r\n\r\n" + chunks[:-3]))

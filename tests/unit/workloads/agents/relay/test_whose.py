"""Whose call it is, and which turn."""

import pytest

from bench.fidelity.server_calls import request_name
from workloads.agents.relay.dialect import Refused
from workloads.agents.relay.turns import RETRIED, Turns
from workloads.agents.relay.whose import Numbers, place_of, whose


def found(path, **headers):
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return whose(place_of(path), named, {"s": 7, "": 9}.__getitem__)


def test_the_url_says_it():
    assert place_of("/p/3/map/v1/chat/completions").rest == "/v1/chat/completions"
    assert found("/p/3/map/v1/x") == (3, "map")
    assert found("/p/3/a%3Ab/v1/x") == (3, "a:b")
    assert found("/p/3/main/v1/x", x_thread_id="t9") == (3, "t9")
    assert found("/p/3/main/v1/x", x_session_id="s", thread_id="other") == (3, "main")


def test_real_clients_say_it_in_headers():
    assert found("/v1/messages", x_claude_code_session_id="s") == (7, "main")
    assert found("/v1/messages", x_claude_code_session_id="s", x_claude_code_agent_id="a1") == (7, "a1")
    assert found("/v1/responses", session_id="s", thread_id="s") == (7, "main")
    assert found("/v1/responses", session_id="s", thread_id="t") == (7, "t")
    assert found("/v1/chat/completions", x_session_affinity="sub", x_parent_session_id="s") == (7, "sub")
    assert found("/v1/chat/completions") == (9, "main")


def test_a_dot_in_a_thread_is_escaped_and_no_two_threads_get_one_name():
    """In a call's name the thread stands between dots, where the engine's log is read."""
    names = ["a.b", "a%2Eb", "a_b", "a%2eb", "."]
    threads = [found("/p/3/main/v1/x", x_thread_id=name)[1] for name in names]
    assert threads == ["a%2Eb", "a%252Eb", "a_b", "a%252eb", "%2E"]
    assert found("/v1/x", session_id="s", thread_id="a.b") == (7, "a%2Eb")
    for thread in threads:
        assert request_name(f"chatcmpl-run.3.{thread}.12-0") == ("run", "3", thread, "12")


def test_programs_are_numbered_as_they_appear():
    numbers = Numbers()
    assert [numbers(name) for name in ("b", "a", "b", "c")] == [0, 1, 0, 2]


@pytest.mark.parametrize("path", ["/", "/p/3/main", "/p/3/main/v2/x", "/health", "/p/3/v1/x"])
def test_where_nothing_is(path):
    with pytest.raises(Refused, match=r"a base URL ends in /p/PROGRAM/THREAD/v1") as refused:
        place_of(path)
    assert refused.value.status == 404


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/p/x/main/v1/x", r"must be a number, got 'x'"),
        ("/p/²/main/v1/x", r"must be a number"),
        ("/p/1/a%20b/v1/x", r"printable ASCII characters, got 'a b'"),
        (f"/p/1/{'a' * 65}/v1/x", r"1 to 64"),
        (f"/p/1/{'.' * 22}/v1/x", r"a dot and a % count three"),
    ],
)
def test_what_is_no_program_or_thread(path, words):
    with pytest.raises(Refused, match=words):
        found(path)


def test_turns_count_per_thread_and_the_same_body_twice_is_two():
    turns = Turns()
    assert [turns.take(0, "a", b"x", {}), turns.take(0, "a", b"x", {}), turns.take(0, "b", b"x", {})] == [
        0,
        1,
        0,
    ]
    assert turns.take(1, "a", b"x", {}) == 0


def test_a_retry_is_the_turn_that_it_repeats():
    turns = Turns()
    assert turns.take(0, "a", b"x", {}) == 0
    turns.failed(0, "a", b"x", 0)
    assert turns.take(0, "a", b"y", {}) == 1  # another one in between
    assert turns.take(0, "a", b"x", {}) == 0  # the one that failed
    assert turns.take(0, "a", b"x", {}) == 2  # it did not fail again
    assert turns.take(0, "a", b"x", {RETRIED: "1"}) == 2  # its reply was lost on the way
    assert turns.take(0, "a", b"y", {RETRIED: "0"}) == 3
    assert turns.take(0, "a", b"z", {RETRIED: "2"}) == 4  # what it repeats never came here

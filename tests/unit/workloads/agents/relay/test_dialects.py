"""Any turn survives each dialect, whole and streamed, however the engine's reply is cut into pieces."""

import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.workloads.agents.relay import readers, upstream
from workloads.agents.contract import ToolCall, Turn
from workloads.agents.relay.dialect import Counted, Pieces, Refused, dialects
from workloads.agents.relay.sse import Splitter
from workloads.agents.relay.sse import event as written_event

CHAT, RESPONSES, MESSAGES = (
    dialects()[f"/v1/{path}"] for path in ("chat/completions", "responses", "messages")
)
WIRE = {
    "chat": (upstream.chat_whole, upstream.chat_events, readers.chat_whole, readers.chat_stream),
    "responses": (
        upstream.response,
        upstream.response_events,
        readers.response_whole,
        readers.response_stream,
    ),
    "messages": (upstream.message, upstream.message_events, readers.message_whole, readers.message_stream),
}
ENDS = {"chat": ("stop", "tool_calls"), "responses": ("completed",) * 2, "messages": ("end_turn", "tool_use")}

words = st.text(st.characters(exclude_categories=("Cs",)), max_size=40)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=6,
)
calls = st.builds(
    ToolCall, st.uuids().map(str), st.from_regex(r"[a-z_]{1,12}", fullmatch=True),
    st.dictionaries(words, values, max_size=3),
)  # fmt: skip
turns = st.builds(Turn, words, st.lists(calls, max_size=3).map(tuple), st.integers(1, 30))


def same(read, turn, dialect):
    assert read.text == turn.text
    assert read.calls == [(c.id, c.name, dict(c.arguments)) for c in turn.tool_calls]
    assert read.end == ENDS[dialect.name][bool(turn.tool_calls)]
    assert read.tokens == (upstream.PROMPT, turn.output_tokens)


@pytest.mark.parametrize("dialect", dialects().values(), ids=lambda d: d.name)
@settings(max_examples=40, deadline=None)
@given(turn=turns)
def test_a_turn_comes_through_whole(dialect, turn):
    engine, _, read, _ = WIRE[dialect.name]
    reply = engine("n", turn.output_tokens)
    found = dialect.whole(reply, turn, {})
    same(read(json.dumps(found)), turn, dialect)
    assert dialect.counted(reply) == (upstream.PROMPT, turn.output_tokens, upstream.CACHED)
    assert found["id"] == reply["id"]


@pytest.mark.parametrize("dialect", dialects().values(), ids=lambda d: d.name)
@settings(max_examples=40, deadline=None)
@given(turn=turns, cuts=st.lists(st.integers(1, 400), min_size=1, max_size=20))
def test_a_turn_comes_through_in_a_stream(dialect, turn, cuts):
    _, engine, _, read = WIRE[dialect.name]
    asked = {"stream": True, "stream_options": {"include_usage": True}}
    data = "".join(engine("n", turn.output_tokens)).encode()
    player, splitter, out, over = dialect.player(turn, asked), Splitter(), [], []
    at = step = 0
    while at < len(data):
        size = cuts[step % len(cuts)]
        for event in splitter.feed(data[at : at + size]):
            seen = dialect.seen(event)
            out.append(player.play(event, seen))
            over.append(seen.over)
        at, step = at + size, step + 1
    assert splitter.left == b""
    assert over == [False] * (len(over) - 1) + [True]
    same(read(b"".join(out)), turn, dialect)


@pytest.mark.parametrize("dialect", dialects().values(), ids=lambda d: d.name)
def test_text_comes_with_the_tokens_and_not_at_once(dialect):
    turn = Turn("abcdefghijklmnopqrstuvwx" * 2, (), 12)
    player = dialect.player(turn, {"stream": True})
    lengths = [0]
    said = bytearray()
    for raw in WIRE[dialect.name][1]("n", 12):
        (event,) = Splitter().feed(raw.encode())
        said += player.play(event, dialect.seen(event))
        lengths.append(len(said))
    deltas = WIRE[dialect.name][3](bytes(said)).deltas
    assert len(deltas) >= 8  # the engine has text with two tokens of three
    assert max(map(len, deltas[:-1])) == 4
    assert max(map(len, deltas)) <= 20


@given(text=words, tokens=st.integers(1, 20), events=st.integers(0, 30))
def test_pieces_are_even_and_complete(text, tokens, events):
    pieces = Pieces(text, tokens)
    found = [pieces.next() for _ in range(events)]
    assert "".join(found) + pieces.rest() == text
    assert max(map(len, found), default=0) <= math.ceil(len(text) / tokens)
    if events >= tokens:
        assert "".join(found) == text


def test_what_a_stream_says_of_its_tokens_adds_up():
    start = {"type": "message_start", "message": {"usage": {"input_tokens": 20, "output_tokens": 1}}}
    over = {"type": "message_delta", "delta": {}, "usage": {"output_tokens": 7}}  # as Anthropic's own
    found = Counted()
    for data in (start, over):
        (event,) = Splitter().feed(written_event(data, data["type"]))
        found = found.and_then(MESSAGES.seen(event).counted)
    assert found == (20, 7, -1)


def test_what_bends_or_ends_a_reply_is_not_asked_for():
    tools = [{"type": "function", "function": {"name": "f"}}]
    asked = {
        "messages": [1], "tools": tools, "tool_choice": "required", "stop": ["x"], "max_tokens": 900,
        "max_completion_tokens": 900, "response_format": {"type": "json_object"}, "logprobs": True,
        "temperature": 1.0, "seed": 3, "n": 1,
    }  # fmt: skip
    assert CHAT.forced(asked, 7) == {
        "messages": [1], "tools": tools, "tool_choice": "none", "max_tokens": 7, "min_tokens": 7,
        "ignore_eos": True, "temperature": 0, "seed": 3, "n": 1,
    }  # fmt: skip
    with pytest.raises(Refused, match="asks for n=2"):
        CHAT.forced({**asked, "n": 2}, 7)
    patch = {"type": "custom", "name": "patch", "format": {"type": "grammar", "definition": "x"}}
    asked = {
        "input": "x", "tools": [patch], "stop": "x",
        "text": {"format": {"type": "json_schema"}, "verbosity": "low"},
        "include": ["message.output_text.logprobs"],
    }  # fmt: skip
    assert RESPONSES.forced(asked, 7) == {
        "input": "x", "tools": [{"type": "custom", "name": "patch"}], "tool_choice": "none",
        "text": {"verbosity": "low"}, "max_output_tokens": 7, "ignore_eos": True, "temperature": 0,
    }  # fmt: skip
    asked = {"messages": [1], "max_tokens": 4000, "stop_sequences": ["x"], "tools": [1],
             "thinking": {"type": "enabled", "budget_tokens": 2000},
             "tool_choice": {"type": "any"}}  # fmt: skip
    assert MESSAGES.forced(asked, 7) == {
        "messages": [1], "max_tokens": 7, "temperature": 0, "tools": [1], "tool_choice": {"type": "none"},
    }  # fmt: skip
    assert "tool_choice" not in MESSAGES.forced({"messages": [1]}, 7)


def test_a_custom_tool_of_responses_gets_its_text():
    asked = {"tools": [{"type": "custom", "name": "patch"}], "tool_choice": "auto", "temperature": 0.5}
    turn = Turn("", (ToolCall("c1", "patch", {"input": "*** Begin"}),), 3)
    found = RESPONSES.whole(upstream.response("resp_n", 3), turn, asked)
    (item,) = found["output"]
    assert item == {"id": "ctc_n.0", "type": "custom_tool_call", "call_id": "c1", "name": "patch",
                    "status": "completed", "input": "*** Begin"}  # fmt: skip
    assert (found["tool_choice"], found["temperature"], found["tools"]) == ("auto", 0.5, asked["tools"])
    assert found["max_output_tokens"] is None
    player = RESPONSES.player(turn, asked)
    out = bytearray()
    for event in Splitter().feed("".join(upstream.response_events("resp_n", 3)).encode()):
        out += player.play(event, RESPONSES.seen(event))
    assert readers.response_stream(bytes(out)).calls == [("c1", "patch", {"input": "*** Begin"})]


@pytest.mark.parametrize(
    ("dialect", "raw", "words"),
    [
        (CHAT, 'data: {"error": {"message": "engine dead", "code": 500}}\n\n', "engine dead"),
        (RESPONSES, 'event: error\ndata: {"type": "error", "message": "engine dead"}\n\n', "engine dead"),
        (
            RESPONSES,
            'data: {"type": "response.failed", "response": {"error": {"message": "dead"}}}\n\n',
            "dead",
        ),
        (MESSAGES, 'event: error\ndata: {"type": "error", "error": {"message": "gone"}}\n\n', "gone"),
    ],
)
def test_an_error_in_a_stream_is_seen_and_passed(dialect, raw, words):
    (event,) = Splitter().feed(raw.encode())
    seen = dialect.seen(event)
    assert (seen.failed, seen.over) == (words, False)
    assert dialect.player(Turn("x"), {}).play(event, seen) == raw.encode()


def test_a_chat_that_ends_without_a_reason_is_complete_all_the_same():
    turn = Turn("ab", (ToolCall("c1", "f", {}),), 2)
    player, out = CHAT.player(turn, {}), bytearray()
    raws = [raw for raw in upstream.chat_events("n", 2, usage=False) if '"length"' not in raw]
    for event in Splitter().feed("".join(raws).encode()):
        out += player.play(event, CHAT.seen(event))
    read = readers.chat_stream(bytes(out))
    assert (read.text, read.calls, read.end) == ("ab", [("c1", "f", {})], "tool_calls")


def test_comments_and_pings_pass():
    for dialect in dialects().values():
        (event,) = Splitter().feed(b": heartbeat\n\n")
        assert dialect.player(Turn("x"), {}).play(event, dialect.seen(event)) == b": heartbeat\n\n"
    (event,) = Splitter().feed(b'event: ping\ndata: {"type": "ping"}\n\n')
    assert MESSAGES.player(Turn("x"), {}).play(event, MESSAGES.seen(event)) == event.raw

"""The comparison behind docs/conformance.md sees what it is to see, and only that."""

import json

import pytest

from benchmarks import conformance
from benchmarks.conformance_parts.cases import cases
from benchmarks.conformance_parts.page import Line, page, summary
from benchmarks.conformance_parts.shape import differences, events, shape
from benchmarks.conformance_parts.wire import Answer

STREAM = (("content-type", "text/event-stream"),)


def whole(body, status=200, headers=()):
    return Answer(status, (("content-type", "application/json"), *headers), json.dumps(body).encode())


def stream(*found, name=""):
    head = f"event: {name}\n" if name else ""
    return Answer(200, STREAM, "".join(f"{head}data: {json.dumps(one)}\n\n" for one in found).encode())


def chat(text, end=None, ident="chatcmpl-a1", **more):
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": end}
    return {"id": ident, "created": 5, "choices": [choice], **more}


def differ(one, two, **asked):
    return differences(shape(one, **asked), shape(two, **asked))


def test_ids_times_and_where_a_stream_was_cut_make_no_difference():
    one = stream(chat("ab"), chat("cd"), chat("e", "stop"))
    two = stream(
        chat("a", ident="chatcmpl-b2"), chat("bc", ident="chatcmpl-b2"), chat("de", "stop", "chatcmpl-b2")
    )
    assert differ(one, two) == []
    assert differ(whole({"id": "resp_1", "created": 1}), whole({"id": "resp_2", "created": 9})) == []


@pytest.mark.parametrize(
    ("other", "where"),
    [
        (stream(chat("ab"), chat("c", "stop")), "said.content"),
        (stream(chat("ab"), chat("cd", "length")), "finish_reason"),
        (stream(chat("ab"), chat("cd", "stop", "chatcmpl-other")), "id"),
        (stream(chat("ab"), chat("cd", "stop", usage={"x": 1})), "usage"),
        (stream(chat("ab"), chat("cd", "stop"), {"id": "chatcmpl-a1", "choices": [], "usage": {}}), "all"),
        (stream(chat("abcd", "stop"), name="x"), "events"),
        (Answer(200, STREAM, b"", "IncompleteRead"), "lost"),
    ],
)
def test_what_a_stream_says_makes_one(other, where):
    lines = differ(stream(chat("ab"), chat("cd", "stop")), other)
    assert any(where in line for line in lines), lines


@pytest.mark.parametrize(
    ("other", "where"),
    [
        (whole({"a": 1, "id": "resp_1"}, status=404), "status"),
        (whole({"a": 2, "id": "resp_1"}), "body.a"),
        (whole({"a": 1}), 'body.id: "<resp 1>" / absent'),
        (whole({"a": 1, "id": "plain"}), "body.id"),
        (whole({"a": 1, "id": "resp_1", "b": None}), "body.b: absent / null"),
        (whole({"a": 1, "id": "resp_1"}, headers=[("retry-after", "1")]), "headers.retry-after"),
    ],
)
def test_what_a_body_or_head_says_makes_one(other, where):
    assert any(where in line for line in differ(whole({"a": 1, "id": "resp_1"}), other))


def test_an_id_that_the_client_named_must_come_back():
    one, two = whole({"id": "resp_mine"}), whole({"id": "resp_other"})
    assert differ(one, two, sent='{"request_id": "resp_mine"}') != []
    named, other = (whole({}, headers=[("x-request-id", one)]) for one in ("mine", "another"))
    assert differ(named, other) == []
    assert differ(named, other, client_id="mine") != []


def test_a_gap_in_sequence_numbers_and_a_number_that_is_off_are_seen():
    one, two = (stream({"sequence_number": 0}, {"sequence_number": n}) for n in (1, 2))
    assert differ(one, two) == ["streams.sequence numbers: true / false"]
    assert differ(whole({"p": -1.5}), whole({"p": -1.50000001})) == []
    assert differ(whole({"p": -1.5}), whole({"p": -1.51})) != []


def test_comments_are_no_events_and_several_lines_are_one():
    body = b': waiting\n\nevent: a\ndata: {"x":\ndata: 1}\n\ndata: [DONE]\n\n'
    assert list(events(body)) == [("a", {"x": 1}), ("", "[DONE]")]


def test_names_of_cases_are_unique_and_the_page_counts_them():
    names = [case.name for case in cases()]
    assert len(set(names)) == len(names) > 250
    lines = [Line("one", 200, {"a": [], "b": [1, 1]}), Line("two", 400, {"a": [0], "b": []})]
    assert summary(lines) == "2 cases, 4 comparisons: 2 equal, 1 explained, 1 unexplained"
    text = page(lines, "1.2.3", 0)
    assert "| one | 200 | equal | differs: 1 |" in text
    assert "| two | 400 | differs: **not explained** | equal |" in text


@pytest.mark.parametrize(("calls", "told"), [(None, None), ("calls.jsonl", "calls.jsonl")])
def test_an_engine_without_a_call_log_has_none(monkeypatch, tmp_path, calls, told):
    seen = []

    class Process:
        url = "http://127.0.0.1:1"

        def __init__(self, options, folder):
            seen.append(options.targets[0].calls)

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

    monkeypatch.setattr(conformance, "GatewayProcess", Process)
    monkeypatch.setattr(conformance, "_until_well", lambda url: None)
    with conformance.gateways("http://127.0.0.1:1", calls and tmp_path / calls, tmp_path):
        pass
    assert seen[0] == (told and str(tmp_path / told))

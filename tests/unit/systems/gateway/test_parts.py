"""The parts of a gateway that do no I/O: identity, bodies, usage, names in logs, turns, loads, headers."""

import json

import orjson
import pytest

from systems.gateway.bodies import ENDPOINTS, Lengths, caller_fields, outgoing, parse, segments
from systems.gateway.call_log import CallLog, names_of
from systems.gateway.errors import Refused
from systems.gateway.headers import forwarded, returned
from systems.gateway.identity import Caller, caller_of
from systems.gateway.intake import Intake, UsageHider
from systems.gateway.load import load_of
from systems.gateway.options import GatewayOptions, Target
from systems.gateway.turns import Turns
from systems.gateway.usage import Counted, counted_in, told_by_reply, told_by_rows
from systems.gateway.workers import Workers
from tests.unit.systems.gateway.passages import passage
from vocabulary import Snapshot, Usage

CHAT, COMPLETIONS, RESPONSES, MESSAGES = ENDPOINTS


@pytest.mark.parametrize(
    ("body", "headers", "expected"),
    [
        ({}, {}, ("", "")),
        ({"vllm_xargs": {"program_id": 7, "thread_id": "t"}, "session_id": "s"}, {}, ("7", "t")),
        ({"program_id": "p", "session_id": "s"}, {"x-program-id": "h"}, ("p", "")),
        ({"metadata": {"session_id": "m", "thread_id": 3}}, {}, ("m", "3")),
        ({"metadata": "text", "vllm_xargs": [1]}, {"x-session-id": "h", "x-thread-id": "t"}, ("h", "t")),
        ({}, {"x-claude-code-session-id": "c", "x-claude-code-agent-id": "a"}, ("c", "a")),
        ({}, {"session-id": "c", "thread-id": "a"}, ("c", "a")),
        ({}, {"x-session-affinity": "sub", "x-parent-session-id": "top"}, ("top", "sub")),
    ],
)
def test_whose_call_it_is(body, headers, expected):
    assert caller_of(body, headers)[:2] == expected


def test_the_clients_own_words_of_a_retry():
    caller = caller_of({}, {"x-request-id": "r", "idempotency-key": "k", "x-stainless-retry-count": "2"})
    assert (caller.key, caller.request_id, caller.retried) == ("k", "r", True)
    assert caller_of({}, {"x-request-id": "r", "x-stainless-retry-count": "0"})[2:5] == ("", False, "r")
    assert len({caller_of({}, {"authorization": name}).who for name in ("a", "b", "a")}) == 2


FIELDS = caller_fields("p", "t", Snapshot(1.0, 2.0, 3.0))


@pytest.mark.parametrize("raw", [b"{}", b' {"a": 1}', b'{"prompt": "x", "nested": {"vllm_xargs": 1}}'])
def test_what_is_new_goes_in_front(raw):
    sent = outgoing(parse(COMPLETIONS, raw), FIELDS, "id", wants_usage=True)
    assert json.loads(sent) == json.loads(raw) | {"vllm_xargs": FIELDS}
    assert sent.endswith(raw.strip()[1:])


def test_the_clients_extras_stay_and_what_is_no_object_is_left_to_the_engine():
    sent = outgoing(
        parse(COMPLETIONS, b'{"vllm_xargs": {"tool": "x", "service": 9}}'), FIELDS, "id", wants_usage=True
    )
    assert json.loads(sent)["vllm_xargs"] == FIELDS | {"tool": "x"}
    raw = b'{"vllm_xargs": "text"}'
    assert outgoing(parse(COMPLETIONS, raw), FIELDS, "id", wants_usage=True) == raw


def test_nobody_writes_numbers_of_the_process_table_but_the_gateway():
    raw = b'{"vllm_xargs": {"tool": "x", "service": 0, "wait": 1e9, "exec_s": 0, "thread_id": "t"}}'
    assert json.loads(outgoing(parse(COMPLETIONS, raw), {}, "id", wants_usage=True)) == {
        "vllm_xargs": {"tool": "x"}
    }


def test_a_body_that_cannot_be_written_again_is_refused():
    raw = b'{"vllm_xargs": {}, "prompt": ' + b"[" * 300 + b"]" * 300 + b"}"
    with pytest.raises(Refused, match="cannot be written"):
        outgoing(parse(COMPLETIONS, raw), FIELDS, "id", wants_usage=True)


@pytest.mark.parametrize("prompt", [b"[1, [2]]", b"[1, {}]", b"[" * 300 + b"]" * 300, b"7", b"null"])
def test_what_is_no_prompt_has_segments_all_the_same(prompt):
    assert segments(parse(COMPLETIONS, b'{"prompt": ' + prompt + b"}"))


@pytest.mark.parametrize(
    ("endpoint", "body", "parts"),
    [
        (COMPLETIONS, {"prompt": "x"}, 1),
        (COMPLETIONS, {"prompt": [1, 2, 3]}, 1),
        (COMPLETIONS, {"prompt": ["x", "y"], "n": 3}, 6),
        (COMPLETIONS, {"prompt": [[1], [2]]}, 2),
        (CHAT, {"messages": [{}, {}], "n": 2}, 2),
        (CHAT, {"messages": [{}, {}], "n": None}, 1),
        (RESPONSES, {"input": [{}, {}], "n": 2}, 1),
    ],
)
def test_how_many_requests_an_engine_makes_of_one(endpoint, body, parts):
    assert parse(endpoint, json.dumps(body).encode()).parts == parts


def test_usage_is_asked_of_streams_only_where_it_can_be():
    def options(endpoint, body, wants=True):
        ask = parse(endpoint, json.dumps(body).encode())
        sent = json.loads(outgoing(ask, {}, "id", wants_usage=wants))
        return sent.get("stream_options"), ask.hides_usage

    assert options(CHAT, {"stream": True}) == ({"include_usage": True}, True)
    assert options(CHAT, {"stream": True, "stream_options": {"x": 1}}) == (
        {"x": 1, "include_usage": True},
        True,
    )
    asked = {"include_usage": True}
    assert options(CHAT, {"stream": True, "stream_options": asked}) == (asked, False)
    assert options(CHAT, {"stream": True}, wants=False) == (None, False)
    assert options(CHAT, {"stream": False}) == (None, False)
    assert options(MESSAGES, {"stream": True}) == (None, False)


def test_prompts_are_counted_where_they_are_ids_and_else_learned():
    lengths = Lengths()
    ids = parse(COMPLETIONS, b'{"prompt": [1, 2, 3]}')
    assert lengths.of(ids) == 3
    assert lengths.of(parse(COMPLETIONS, b'{"prompt": [[1, 2], [3]]}')) == 3
    text = parse(COMPLETIONS, json.dumps({"prompt": "x" * 986}).encode())
    assert lengths.of(text) == 250
    for _ in range(100):
        lengths.learn(text, 1000)
        lengths.learn(ids, 1)
    assert lengths.of(text) == pytest.approx(1000, rel=0.02)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"prompt": list(range(64))}, {"prompt": [*range(48), *range(100, 120)]}),
        ({"prompt": "a" * 192 + "b"}, {"prompt": "a" * 192 + "c" * 90}),
    ],
)
def test_prompts_share_as_many_segments_as_they_share_blocks(one, other):
    first, second = (segments(parse(COMPLETIONS, json.dumps(body).encode())) for body in (one, other))
    assert first[:3] == second[:3]
    assert first[3] != second[3]


def test_a_longer_conversation_begins_with_the_shorter_one():
    turns = [{"role": "user", "content": f"turn {i} " * 20} for i in range(4)]
    short, long = (segments(parse(CHAT, json.dumps({"messages": turns[:n]}).encode())) for n in (2, 4))
    assert long[: len(short) - 1] == short[:-1]


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        (b'{"usage": {"prompt_tokens": 9, "completion_tokens": 3}}', Counted(9, 3)),
        (
            b'{"usage":{"prompt_tokens":9,"completion_tokens":3,"prompt_tokens_details":{"cached_tokens":8}}}',
            Counted(9, 3, 8),
        ),
        (b'{"usage":{"input_tokens":1,"output_tokens":3,"cache_read_input_tokens":8}}', Counted(9, 3, 8)),
        (
            b'{"usage":{"input_tokens":9,"output_tokens":3,"input_tokens_details":{"cached_tokens":8}}}',
            Counted(9, 3, 8),
        ),
        (
            b'data: {"usage":{"prompt_tokens":1,"completion_tokens":1}}\n\ndata: {"usage":null}\n\n',
            Counted(1, 1),
        ),
        (b'{"text": "say \\"usage\\": {\\"prompt_tokens\\": 5}"}', None),
        (b'{"usage": {"prompt_tokens": 9, "completion_to', None),
        (b"", None),
    ],
)
def test_the_usage_of_a_reply(reply, expected):
    assert counted_in(reply) == expected


def test_service_by_the_reply_in_every_unit():
    counted = Counted(1100, 5, 76)
    assert told_by_reply("step", counted, 2.0, 0.5, 512).usage == Usage(
        6.0, 2.0, 0.5
    )  # 2 steps of prompt, 4 more
    assert told_by_reply("token", counted, 2.0, 0.0, 512).usage.served == 1028.0
    assert told_by_reply("s", counted, 2.0, 0.0, 512).usage.served == 2.0
    assert told_by_reply("step", Counted(64, 0, 64), 2.0, 0.0, 512).usage.served == 1.0
    assert told_by_reply("step", None, 2.0, 0.0, 512).usage == Usage(0.0, 2.0, 0.0)


def test_rows_of_a_call_add_up_and_the_longest_gives_the_times():
    def one(served, wait_s, decode_s):
        return {
            "t_arrive": 0.0, "t_end": wait_s + decode_s, "prefill_s": 0.0, "reprefill_s": 0.0, "swap_s": 0.0,
            "decode_s": decode_s, "wait_s": wait_s, "served": served, "cached_tokens": 1,
            "prefill_tokens": 2, "output_tokens": 3,
        }  # fmt: skip

    charge = told_by_rows([one(1.0, 1.0, 5.0), one(2.0, 3.0, 4.0)], 0.5)
    assert charge.usage == Usage(3.0, 4.0, 3.5)
    assert charge.counted == Counted(6, 6, 2)


@pytest.mark.parametrize(
    "logged",
    ["cmpl-my-id-0-01234567", "cmpl-my-id-3", "chatcmpl-my-id-89abcdef", "chatcmpl-my-id",
     "1_chatcmpl-my-id-89abcdef", "resp_my-id_0-89abcdef", "my-id"],
)  # fmt: skip
def test_a_request_is_found_under_vllms_name_for_it(logged):
    assert "my-id" in names_of(logged)


def test_a_log_is_followed_from_its_end_over_half_lines_and_a_new_file(tmp_path):
    path = tmp_path / "calls.jsonl"
    path.write_text('{"request_id": "cmpl-a"}\n')
    log = CallLog(str(path))
    log.expect("a")
    assert log.rows("a") == []
    with path.open("a") as file:
        file.write('{"request_id": "cmpl-a", "n": 1}\n{"request_id": "cmpl-')
    assert log.rows("a") == [{"request_id": "cmpl-a", "n": 1}]
    with path.open("a") as file:
        file.write('nobody"}\nno json\n{"request_id": "cmpl-a", "n": 2}\n')
    assert [row["n"] for row in log.rows("a")] == [1, 2]
    log.forget("a")
    assert log.rows("a") == []
    log.expect("b")
    path.unlink()
    path.write_text('{"request_id": "chatcmpl-b-01234567"}\n')
    assert len(log.rows("b")) == 1
    log.forget("b")
    assert len(log) == 0
    log.close()


def test_a_log_that_is_not_there_yet_is_looked_for_again(tmp_path):
    log = CallLog(str(tmp_path / "calls.jsonl"))
    assert not log.readable
    (tmp_path / "calls.jsonl").write_text("")
    assert log.readable
    log.close()


def caller(name="p", thread="t", key="", retried=False, request_id="", who=0):
    return Caller(name, thread, key, retried, request_id, who)


def test_turns_are_told_from_retries():
    turns = Turns()

    def take(digest, **fields):
        turn, before = turns.take(caller(**fields), digest)
        return turn, (turn.index, turn.attempt, before is not None)

    first, seen = take(1)
    assert seen == (0, 1, False)
    assert take(1)[1] == (1, 1, False)  # in parallel
    turns.over(first, failed=True)
    second, _ = take(2)
    turns.over(second, failed=True)
    again, seen = take(2)
    assert seen == (2, 2, True)
    turns.over(again, failed=False)
    assert take(2)[1] == (3, 1, False)
    assert take(2, retried=True)[1] == (3, 2, True)
    assert take(2, thread="other")[1] == (0, 1, False)


def test_a_retry_that_is_written_otherwise_is_known_after_a_failure_only():
    turns = Turns()

    def take(digest, alike):
        turn, before = turns.take(caller(), digest, lambda: alike)
        return turn, (turn.index, turn.attempt, before is not None)

    first, _ = take(1, 7)
    assert take(2, 7)[1] == (1, 1, False)  # side by side: agents do sample
    turns.over(first, failed=False)
    last, _ = take(3, 8)
    last.fail(8)  # its row is not here yet
    assert take(4, 9)[1] == (3, 1, False)
    last, _ = take(5, 8)
    last.fail(8)
    assert take(6, 8)[1] == (4, 2, True)


def test_the_order_of_keys_and_streaming_make_no_other_call():
    one = parse(ENDPOINTS[2], b'{"input": "a", "client_metadata": {"x": 1, "y": 2}, "stream": true}')
    two = parse(ENDPOINTS[2], b'{"client_metadata": {"y": 2, "x": 1}, "input": "a"}')
    other = parse(ENDPOINTS[2], b'{"client_metadata": {"y": 2, "x": 2}, "input": "a"}')
    assert one.alike() == two.alike() != other.alike()
    assert parse(ENDPOINTS[2], b'{"a":' + b"[" * 300 + b"]" * 300 + b"}").alike()


def test_keys_name_turns_while_they_are_open_or_have_failed():
    turns = Turns()
    one, _ = turns.take(caller(key="k"), 1)
    other, before = turns.take(caller(key="k"), 2)
    assert (before, other.attempt) == (one, 2)
    turns.over(one, failed=True)
    turns.over(other, failed=False)
    assert len(turns) == 0
    assert turns.take(caller(key="k"), 3)[1] is None
    nobody, _ = turns.take(caller(name="", key="k2"), 1)
    turns.over(nobody, failed=True)
    turns.forget(nobody)
    assert len(turns) == 1  # of "k", which is open


def test_a_request_id_names_a_turn_only_with_the_same_body():
    turns = Turns()
    one, _ = turns.take(caller(request_id="r"), 1)
    assert turns.take(caller(request_id="r"), 2)[1] is None
    assert turns.take(caller(request_id="r"), 1)[1] is one
    assert turns.take(caller(request_id="r", thread="other"), 1)[1] is None


def test_calls_of_nobody_are_the_same_only_with_key_body_and_credentials():
    turns = Turns()
    turns.take(caller(name="", request_id="r"), 1)
    assert turns.take(caller(name="", request_id="r"), 1)[1] is None
    one, _ = turns.take(caller(name="", key="k"), 1)
    assert turns.take(caller(name="", key="k"), 2)[1] is None
    assert turns.take(caller(name="", key="k", who=7), 1)[1] is None
    assert turns.take(caller(name="", key="k"), 1)[1] is one


def test_an_older_turn_that_comes_again_turns_no_index_back():
    turns = Turns()
    turns.over(turns.take(caller(key="a"), 1)[0], failed=True)
    last, _ = turns.take(caller(), 2)
    assert turns.take(caller(key="a"), 1)[0].index == 0
    assert turns.take(caller(), 3)[0].index == 2
    assert last.index == 1


def test_the_last_turn_stays_that_when_an_older_one_comes_again():
    turns = Turns()
    turns.over(turns.take(caller(key="a"), 1)[0], failed=True)
    last, _ = turns.take(caller(), 2)
    turns.take(caller(key="a"), 1)
    assert turns.take(caller(retried=True), 2)[1] is last


VLLM = b"""# HELP vllm:num_requests_running x
vllm:num_requests_running{engine="0",model_name="m"} 3.0
vllm:num_requests_running{engine="1",model_name="m"} 2.0
vllm:num_requests_waiting{engine="0",model_name="m"} 7.0
vllm:num_requests_waiting_by_reason{engine="0",reason="capacity"} 99.0
vllm:kv_cache_usage_perc{engine="0"} 0.25
vllm:kv_cache_usage_perc{engine="1"} 0.75
vllm:cache_config_info{block_size="32",num_gpu_blocks="1025",num_cpu_blocks="None"} 1.0
"""


def test_the_load_of_vllm_and_of_sglang():
    assert load_of(VLLM) == (5, 7, 0.5, 2048)
    sglang = b'sglang:num_running_reqs{a="b"} 1.0\nsglang:num_queue_reqs 2\nsglang:token_usage 0.5\n'
    assert load_of(sglang) == (1, 2, 0.5, 0)
    assert load_of(b"vllm:num_requests_running nan") is None
    assert load_of(b"vllm:num_requests_running 1e999") is None
    page = b"vllm:num_requests_running 1\nvllm:num_requests_waiting 1e300\nvllm:kv_cache_usage_perc 1e999\n"
    page += b'vllm:cache_config_info{block_size="16",num_gpu_blocks="' + b"9" * 5000 + b'"} 1\n'
    found = load_of(page)
    assert found == (1, 10**12, 0.0, 0)
    assert orjson.dumps(list(found)) == b"[1,1000000000000,0.0,0]"
    assert load_of(b"<html>") is None


def test_hop_by_hop_headers_stay_and_bytes_that_are_no_ascii_go_on():
    given = [
        ("Host", "x"),
        ("Connection", "close"),
        ("X-A", "caf\u00e9"),
        ("Authorization", "b"),
        ("Expect", "x"),
    ]
    assert forwarded(given, {"authorization"}) == [("X-A", "caf\u00e9".encode().decode("latin-1"))]
    assert returned([("Transfer-Encoding", "chunked"), ("Date", "now"), ("X-B", "1")]) == [
        ("Date", "now"),
        ("X-B", "1"),
    ]


def test_headers_that_connection_names_stay_on_their_hop():
    given = [("Connection", "keep-alive, X-Hop"), ("x-hop", "1"), ("X-Far", "2")]
    assert forwarded(given) == returned(given) == [("X-Far", "2")]


@pytest.mark.parametrize(
    ("stream", "failed"),
    [
        ('data: {"choices":[]}\n\ndata: {"error": {"message": "x"}}\n\n', True),
        ('data:{ "error": {"message": "x"}}\n\n', True),
        ('event: error\ndata: {"type": "error", "error": {"type": "overloaded_error"}}\n\n', True),
        ("event: error\r\ndata: {}\r\n\r\n", True),
        ('event: response.failed\ndata: {"type":"response.failed"}\n\n', True),
        ('data: {"error": null, "choices": []}\n\n', False),
        ('data: {"choices":[{"text":"\\ndata: {\\"error\\": 1}\\nevent: error"}]}\n\n', False),
        ("data: [DONE]\n\n", False),
    ],
)
def test_streams_that_end_with_an_error(stream, failed):
    intake = Intake(passage(), 0.0, False, lambda: None)
    intake._tail.append(stream.encode())
    assert intake.failed() == failed


def test_an_engine_that_was_slow_is_said_to_be_up_again():
    told, now = [], [0.0]
    workers = Workers(
        (Target("http://h:1"),), lambda: now[0], lambda worker, what, why: told.append((what, worker.since))
    )
    (worker,) = workers
    workers.up(worker)
    now[0] = 1.0
    workers.silent(worker, "late")
    workers.silent(worker, "late")
    assert (worker.why, worker.slow) == ("late", True)
    now[0] = 2.0
    workers.up(worker)
    workers.up(worker)
    assert told == [("up", 0.0), ("slow", 1.0), ("up", 2.0)]
    assert (worker.why, worker.slow) == ("it answers", False)


@pytest.mark.parametrize("end", ["\n\n", "\r\n\r\n"])
@pytest.mark.parametrize("size", [1, 3, 1000])
def test_the_usage_event_is_taken_out_however_the_stream_is_cut(end, size):
    events = [
        'data: {"choices":[{"text":"a"}],"usage":null}',
        'data: {"choices":[],"usage":{"prompt_tokens":1}}',
        "data: [DONE]",
    ]
    stream = "".join(event + end for event in events).encode()
    hider, out = UsageHider(), b""
    for at in range(0, len(stream), size):
        out += hider.feed(stream[at : at + size])
    assert (out + hider.rest).decode() == events[0] + end + events[2] + end


def test_errors_in_every_shape():
    error = Refused(413, "too large")
    assert json.loads(error.body())["error"] == {
        "message": "too large", "type": "request_too_large", "param": None, "code": "request_too_large"
    }  # fmt: skip
    assert json.loads(error.body(anthropic=True)) == {
        "type": "error", "error": {"type": "request_too_large", "message": "too large"}
    }  # fmt: skip
    assert MESSAGES.speech.error(b'{\n"a": 1}') == b'event: error\ndata: { "a": 1}\n\n'
    assert CHAT.speech.error(b'{\n"a": 1}') == b'data: { "a": 1}\n\n'
    kinds = {s: json.loads(Refused(s, "x").body(anthropic=True))["error"]["type"] for s in (409, 500, 503)}
    assert kinds == {409: "conflict_error", 500: "api_error", 503: "overloaded_error"}


@pytest.mark.parametrize(
    ("body", "code", "message"),
    [(Refused(503, "held").body(), "unavailable", "held"), (b"Internal Error", None, "Internal Error"),
     (b'{"error": "no"}', None, "no"), (b"[1]", None, "[1]")],
)  # fmt: skip
def test_an_error_of_responses_has_a_type_and_a_number_whatever_the_engine_said(body, code, message):
    name, data = RESPONSES.speech.error(body).decode().removesuffix("\n\n").split("\n")
    said = json.loads(data.removeprefix("data: "))
    assert (name, said["type"], said["sequence_number"]) == ("event: error", "error", 0)
    assert (said["code"], said["message"], said["error"]["message"]) == (code, message, message)


@pytest.mark.parametrize(
    "url", ["127.0.0.1:8000", "ftp://h", "http://", "http://h:x", "http://h/v1", "http://u@h", "http://h:0"]
)
def test_urls_that_are_none(url):
    with pytest.raises(ValueError, match="an engine's URL is http://HOST:PORT"):
        Target(url)


def test_options_survive_their_file_and_refuse_what_cannot_be():
    options = GatewayOptions(
        (Target("http://h:1", key="k"),), knobs={"router.most_short": "1"}, api_keys=("a",)
    )
    assert GatewayOptions.parse(options.as_json()) == options
    with pytest.raises(ValueError, match="unknown key 'prot'"):
        GatewayOptions.parse('{"targets": [{"url": "http://h:1"}], "prot": 1}')
    with pytest.raises(ValueError, match="needs an engine"):
        GatewayOptions(())
    with pytest.raises(ValueError, match="late_s must be 0 or more"):
        GatewayOptions((Target("http://h:1"),), late_s=-1.0)
    with pytest.raises(ValueError, match="named twice"):
        GatewayOptions((Target("http://h:1"), Target("http://h:1/")))

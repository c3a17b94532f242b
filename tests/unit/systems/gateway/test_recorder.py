"""The recorder: what it writes of each dialect, and that it never stands in anybody's way."""

import errno
import json
import os

import pytest

from systems.catalog import CatalogError
from systems.gateway import appending
from systems.gateway.bodies import ENDPOINTS, parse
from systems.gateway.gateway import Gateway
from systems.gateway.options import GatewayOptions, Target
from systems.gateway.record import recorder as recorders
from systems.gateway.record.prompts import Unreadable, prompt_of
from systems.gateway.record.recorder import Recorder
from systems.gateway.record.replies import Heard
from systems.gateway.watchers import attach
from tests.unit.systems.gateway.engines import Engine, on_loop, until, world

CHAT, TEXT, RESPONSES, MESSAGES = ENDPOINTS
CALL = {"name": "look_around", "arguments": '{"where": "KITCHEN", "deep": true}'}
SAID = {
    "role": "assistant",
    "content": "LOOKING NOW",
    "tool_calls": [{"id": "1", "type": "function", "function": CALL}],
}
USAGE = {"prompt_tokens": 9, "completion_tokens": 4}
COUNTED = {"input_tokens": 9, "output_tokens": 4}


def ask(endpoint, **body):
    return parse(endpoint, json.dumps({"model": "m", **body}).encode())


def heard(endpoint, raw, stream, cut=7):
    """What is heard of a reply that comes in small pieces."""
    listener = Heard(ask(endpoint, stream=stream))
    receive = listener.through(lambda stamp, piece: None)
    for at in range(0, len(raw), cut):
        receive(0.0, raw[at : at + cut])
    return listener


def sse(*events):
    return "".join(f"data: {json.dumps(event)}\n\n" for event in events).encode() + b"data: [DONE]\n\n"


def said_in(endpoint, *messages):
    """What the last assistant of a prompt says."""
    pieces = prompt_of(ask(endpoint, **{endpoint.prompt: list(messages)})).pieces
    return [piece.said for piece in pieces if piece.role == "a"][-1]


def delta(**fields):
    return {"choices": [{"index": 0, "delta": fields}]}


def test_a_chats_reply_is_equal_to_the_message_that_quotes_it_whole_and_streamed():
    whole = json.dumps({"choices": [{"message": SAID}], "usage": USAGE}).encode()
    tool = {"index": 0, "function": {"name": "look_around"}}
    streamed = sse(
        delta(role="assistant", content="LOOKING "), delta(content="NOW"), delta(tool_calls=[tool]),
        delta(tool_calls=[{"index": 0, "function": {"arguments": '{"deep":true,'}}]),
        delta(tool_calls=[{"index": 0, "function": {"arguments": '"where":"KITCHEN"}'}}]),
        {"choices": [], "usage": USAGE},
    )  # fmt: skip
    right = said_in(CHAT, {"role": "user", "content": "hm"}, SAID)
    for raw, stream in ((whole, False), (streamed, True)):
        found = heard(CHAT, raw, stream)
        assert (found.said(), found.tools()) == (right, 1)


def test_thoughts_are_said_first_and_are_missed_where_a_prompt_leaves_them_out():
    raw = sse(delta(reasoning_content="HMM"), delta(content="YES"))
    whole = said_in(CHAT, {"role": "assistant", "content": "YES", "reasoning_content": "HMM"})
    assert heard(CHAT, raw, True).said() == whole != said_in(CHAT, {"role": "assistant", "content": "YES"})


def test_a_reply_of_messages_is_equal_to_the_message_that_quotes_it():
    content = [
        {"type": "text", "text": "LOOKING"},
        {"type": "tool_use", "id": "1", "name": "look", "input": {"where": "KITCHEN"}},
    ]
    whole = json.dumps({"role": "assistant", "content": content, "usage": COUNTED}).encode()
    tool = {"type": "tool_use", "name": "look", "input": {}}
    parts = [{"type": "input_json_delta", "partial_json": part} for part in ('{"where":', '"KITCHEN"}')]
    streamed = sse(
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "LOOKING"}},
        {"type": "content_block_start", "index": 1, "content_block": tool},
        *({"type": "content_block_delta", "index": 1, "delta": part} for part in parts),
    )
    right = said_in(MESSAGES, {"role": "user", "content": "hm"}, {"role": "assistant", "content": content})
    for raw, stream in ((whole, False), (streamed, True)):
        found = heard(MESSAGES, raw, stream)
        assert (found.said(), found.tools()) == (right, 1)


def test_a_reply_of_responses_is_several_items_and_one_piece():
    output = [
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "LOOKING"}]},
        {"type": "function_call", "call_id": "1", "name": "look", "arguments": '{"where":"KITCHEN"}'},
    ]
    whole = json.dumps({"output": output, "usage": COUNTED}).encode()
    streamed = sse({"type": "response.completed", "response": {"output": output, "usage": COUNTED}})
    result = {"type": "function_call_output", "call_id": "1", "output": "EMPTY"}
    prompt = prompt_of(ask(RESPONSES, input=[{"role": "user", "content": "hm"}, *output, result]))
    assert [piece.role for piece in prompt.pieces] == ["u", "a", "t"]
    for raw, stream in ((whole, False), (streamed, True)):
        found = heard(RESPONSES, raw, stream)
        assert (found.said(), found.tools()) == (prompt.pieces[1].said, 1)


def test_long_streams_are_read_as_they_come():
    raw = sse(*(delta(content=f"{number} ") for number in range(2000)))
    found = heard(CHAT, raw, True, cut=1000)
    assert sum(map(len, found._pieces)) < 20_000
    assert found.said().decode() == "".join(f"{number} " for number in range(2000))


def test_what_stands_before_all_messages_is_a_piece_at_the_front():
    tools = [{"type": "function", "function": {"name": "look"}}]
    body = {"messages": [{"role": "user", "content": "hm"}], "tools": tools}
    assert [piece.role for piece in prompt_of(ask(CHAT, **body)).pieces] == ["h", "u"]
    other = {**body, "cache_salt": "s"}
    assert prompt_of(ask(CHAT, **body)).apart != prompt_of(ask(CHAT, **other)).apart


@pytest.mark.parametrize(
    ("endpoint", "body", "why"),
    [
        (CHAT, {}, "no messages"),
        (CHAT, {"messages": []}, "no messages"),
        (CHAT, {"messages": [{"role": "user"}], "n": 2}, "several prompts or samples"),
        (TEXT, {"prompt": ["a", "b"]}, "several prompts or samples"),
        (TEXT, {"prompt": [1, -2]}, "no token ids"),
        (TEXT, {"prompt": 3}, "no prompt"),
        (RESPONSES, {"input": "hm", "previous_response_id": "r"}, "kept by the engine"),
    ],
)
def test_a_prompt_without_one_sequence_is_said_to_be_none(endpoint, body, why):
    with pytest.raises(Unreadable, match=why):
        prompt_of(ask(endpoint, **body))


def lines(folder):
    return [json.loads(line) for path in sorted(folder.iterdir()) for line in path.read_text().splitlines()]


def of_kind(folder, kind):
    return [line for line in lines(folder) if line["event"] == kind]


async def chat(call):
    call.reply({"choices": [{"message": SAID}], "usage": USAGE})


@on_loop
async def test_it_records_beside_any_system_and_says_nothing_of_names_or_text(tmp_path):
    async with world(Engine(chat), system="autellix", record=str(tmp_path)) as w:
        attach(w.gateway)
        secret = [{"role": "user", "content": "SECRETSECRET"}]
        headers = {"X-Session-ID": "MY-PROJECT", "X-Thread-ID": "MY-THREAD", "Authorization": "Bearer MY-KEY"}
        for _ in range(2):
            await w.post("/v1/chat/completions", {"model": "m", "messages": secret}, headers)
        await w.post("/v1/chat/completions", {"model": "m", "messages": 5}, headers)
        assert w.engines[0].calls[0].xargs["program_id"] == "MY-PROJECT"
    text = (tmp_path / "calls-0001.jsonl").read_text()
    for word in ("SECRET", "MY-", "LOOKING", "KITCHEN", "look_around", w.engines[0].url):
        assert word not in text
    first, second, third = of_kind(tmp_path, "call")
    assert (first["program"], first["thread"], first["index"], first["named"]) == (0, 0, 0, True)
    assert (second["index"], second["prompt"], second["tools"]) == (1, first["prompt"], 1)
    assert (third["unreadable"], "prompt" in third) == ("no messages", False)
    assert len(of_kind(tmp_path, "piece")) == 1
    assert [line["name"] for line in of_kind(tmp_path, "model")] == ["m"]


@on_loop
async def test_each_start_has_a_file_and_a_salt_of_its_own(tmp_path):
    for _ in range(2):
        async with world(Engine(chat), record=str(tmp_path)) as w:
            attach(w.gateway)
            await w.post(
                "/v1/chat/completions", {"model": "m", "messages": [{"role": "user", "content": "x"}]}
            )
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["calls-0001.jsonl", "calls-0002.jsonl"]
    one, two = of_kind(tmp_path, "piece")
    assert one["hashes"] != two["hashes"]
    heads = of_kind(tmp_path, "recording")
    assert heads[0]["salt"] != heads[1]["salt"]


@on_loop
async def test_calls_that_come_to_nothing_are_recorded_as_such(tmp_path):
    async def refuse(call):
        call.reply({"error": {"message": "your SECRET is bad"}}, status=400)

    async with world(Engine(refuse), record=str(tmp_path)) as w:
        attach(w.gateway)
        status, _, _ = await w.ask(prompt="SECRET")
        assert status == 400
        assert (await w.post("/v1/completions", b"no json"))[0] == 400
    (only,) = of_kind(tmp_path, "call")
    assert (only["outcome"], "prompt" in only) == ("error", False)
    assert "SECRET" not in (tmp_path / "calls-0001.jsonl").read_text()


@on_loop
async def test_on_a_full_disk_clients_have_their_replies_and_pieces_are_written_anew(
    tmp_path, monkeypatch, capsys
):
    body = {"model": "m", "messages": [{"role": "user", "content": "x"}]}
    write, full = os.write, [True]

    def limited(fd, data):
        if full[0] and b'"event":"call"' in bytes(data):
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(fd, data)

    monkeypatch.setattr(appending.os, "write", limited)
    async with world(Engine(chat)) as w:
        recorder = Recorder(tmp_path, {"wall": 0.0}, flush_s=0)
        w.gateway.observers.append(recorder)
        w.gateway.carrier.listens = recorder.hear
        for _ in range(2):
            status, _, _ = await w.post("/v1/chat/completions", body)
            assert status == 200
            await until(lambda: not recorder._over)
            recorder.file.flush()
        full[0] = False
        await w.post("/v1/chat/completions", body)
    assert capsys.readouterr().err.count("recording: cannot write") == 1
    found = lines(tmp_path)
    assert [line["event"] for line in found] == ["recording", "dropped", "model", "piece", "call"]
    assert found[1]["lines"] == recorder.file.dropped
    assert found[-1]["prompt"] == found[-2]["piece"]


@on_loop
async def test_a_mistake_of_ours_costs_a_line_and_no_client_its_reply(tmp_path, monkeypatch, caplog):
    def broken(ask):
        raise RuntimeError("a mistake")

    async with world(Engine(chat), record=str(tmp_path)) as w:
        attach(w.gateway)
        monkeypatch.setattr(recorders, "prompt_of", broken)
        status, _, _ = await w.ask()
        assert status == 200
    assert "is not recorded" in caplog.text
    assert [line["event"] for line in lines(tmp_path)][1:] in (
        ["model"],
        ["model", "dropped"],
        ["dropped", "model"],
    )


@on_loop
async def test_observing_leaves_bodies_as_they_are_and_asks_streams_for_their_usage():
    async with world(Engine(), observe=True, system="session-pinned") as w:
        raw = b'{"model":"m","prompt":"x","vllm_xargs":{"program_id":"p","service":7}}'
        await w.post("/v1/completions", raw, {"X-Session-ID": "s"})
        await w.post("/v1/responses", b'{"model":"m","input":"x"}')
        _, _, reply = await w.post("/v1/completions", b'{"model":"m","prompt":"x","stream":true}')
        assert [call.raw for call in w.engines[0].calls[:2]] == [raw, b'{"model":"m","input":"x"}']
        asked = w.engines[0].calls[2].body
        assert asked == {
            "model": "m",
            "prompt": "x",
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        assert b"usage" not in reply
        assert w.last.prompt_tokens == 100


def test_nobody_observes_with_a_gate():
    options = GatewayOptions((Target("http://127.0.0.1:9"),), system="program-cap", observe=True)
    with pytest.raises(CatalogError, match="program-cap holds or keeps programs"):
        Gateway(options)

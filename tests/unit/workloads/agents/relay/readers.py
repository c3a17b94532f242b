"""Dumb, strict readers of replies, written without a look at what writes them."""

import json
from typing import NamedTuple


class Read(NamedTuple):
    """``calls``: (id, name, arguments); ``end``: why it ended; ``tokens``: (prompt, output), None if
    not said; ``deltas``: the pieces of text."""

    text: str
    calls: list
    end: str
    tokens: tuple | None
    deltas: list


def events(data):
    """(type or "", JSON or None) of a whole stream; comments are left out."""
    text = data.decode()
    assert text.endswith("\n\n")
    for block in text.split("\n\n")[:-1]:
        lines = block.split("\n")
        if all(line.startswith(":") for line in lines):
            continue
        kinds = [line.removeprefix("event: ") for line in lines if line.startswith("event: ")]
        (said,) = (line.removeprefix("data: ") for line in lines if line.startswith("data: "))
        yield (kinds[0] if kinds else ""), (None if said == "[DONE]" else json.loads(said))


# -- /v1/chat/completions --------------------------------------------------------------


def chat_whole(data):
    reply = json.loads(data)
    assert reply["object"] == "chat.completion"
    (choice,) = reply["choices"]
    said = choice["message"]
    assert said["role"] == "assistant"
    assert "tool_calls" not in said or said["tool_calls"]
    calls = []
    for call in said.get("tool_calls", []):
        assert call["type"] == "function"
        calls.append((call["id"], call["function"]["name"], json.loads(call["function"]["arguments"])))
    assert isinstance(said["content"], str) or calls
    usage = reply["usage"]
    tokens = (usage["prompt_tokens"], usage["completion_tokens"])
    return Read(said["content"] or "", calls, choice["finish_reason"], tokens, [])


def chat_stream(data):
    found = list(events(data))
    assert found.pop() == ("", None)
    deltas, calls, end, tokens, roles = [], [], None, None, 0
    for kind, chunk in found:
        assert (kind, chunk["object"]) == ("", "chat.completion.chunk")
        if not chunk["choices"]:
            assert tokens is None
            tokens = chunk["usage"]["prompt_tokens"], chunk["usage"]["completion_tokens"]
            continue
        assert tokens is None
        assert end is None, "a chunk behind the last one"
        (choice,) = chunk["choices"]
        delta, end = choice["delta"], choice["finish_reason"]
        roles += "role" in delta
        if delta.get("content"):
            deltas.append(delta["content"])
        for part in delta.get("tool_calls", []):
            if part["index"] == len(calls):
                assert part["type"] == "function"
                calls.append([part["id"], part["function"]["name"], ""])
            assert part["index"] == len(calls) - 1
            calls[-1][2] += part["function"]["arguments"]
    assert roles == 1
    return Read("".join(deltas), [(i, n, json.loads(a)) for i, n, a in calls], end, tokens, deltas)


# -- /v1/responses ---------------------------------------------------------------------


def response_whole(data):
    return _response(json.loads(data), [])


def _response(reply, deltas):
    assert reply["object"] == "response"
    assert reply["incomplete_details"] is None
    text, calls = "", []
    assert reply["output"]
    for item in reply["output"]:
        assert item["status"] == "completed"
        if item["type"] == "message":
            assert not calls
            assert item["role"] == "assistant"
            (part,) = item["content"]
            assert part["type"] == "output_text"
            text += part["text"]
        elif item["type"] == "custom_tool_call":
            calls.append((item["call_id"], item["name"], {"input": item["input"]}))
        else:
            assert item["type"] == "function_call"
            calls.append((item["call_id"], item["name"], json.loads(item["arguments"])))
    ids = [item["id"] for item in reply["output"]]
    assert len(set(ids)) == len(ids)
    tokens = reply["usage"]["input_tokens"], reply["usage"]["output_tokens"]
    return Read(text, calls, reply["status"], tokens, deltas)


def response_stream(data):
    found = list(events(data))
    assert [event["sequence_number"] for _, event in found] == list(range(len(found)))
    assert all(kind == event["type"] for kind, event in found)
    assert [kind for kind, _ in found[:2]] == ["response.created", "response.in_progress"]
    kind, last = found[-1]
    assert kind == "response.completed"
    items, deltas = _items(found[2:-1])
    assert items == last["response"]["output"]
    assert found[0][1]["response"]["id"] == last["response"]["id"]
    return _response(last["response"], deltas)


def _items(found):
    """Put together from the events between, item after item."""
    items, texts, item, said = [], [], None, ""
    for kind, event in found:
        what = kind.removeprefix("response.")
        assert event.get("output_index") == len(items)
        if what == "output_item.added":
            assert item is None
            item, said = dict(event["item"]), ""
            assert item["status"] == "in_progress"
        elif what == "output_item.done":
            assert event["item"] == {**item, "status": "completed"}
            items.append(event["item"])
            item = None
        else:
            assert event["item_id"] == item["id"]
            if what.endswith(".delta"):
                said += event["delta"]
                texts += [event["delta"]] if what == "output_text.delta" else []
            elif what == "output_text.done":
                assert event["text"] == said
            elif what == "content_part.done":
                assert event["part"]["text"] == said
                item["content"] = [event["part"]]
            elif what.endswith(".done"):
                field = "input" if what.startswith("custom") else "arguments"
                assert event[field] == said
                item[field] = said
            else:
                assert what == "content_part.added"
    assert item is None
    return items, texts


# -- /v1/messages ----------------------------------------------------------------------


def message_whole(data):
    return _message(json.loads(data), [])


def _message(reply, deltas):
    assert (reply["type"], reply["role"]) == ("message", "assistant")
    text, calls = "", []
    for block in reply["content"]:
        if block["type"] == "text":
            assert not calls
            text += block["text"]
        else:
            assert block["type"] == "tool_use"
            calls.append((block["id"], block["name"], block["input"]))
    usage = reply["usage"]
    prompt = sum(usage[f"{kind}input_tokens"] for kind in ("", "cache_read_", "cache_creation_"))
    return Read(text, calls, reply["stop_reason"], (prompt, usage["output_tokens"]), deltas)


def message_stream(data):
    found = [(kind, event) for kind, event in events(data) if kind != "ping"]
    assert all(kind == event["type"] for kind, event in found)
    assert found[0][0] == "message_start"
    assert found[-1] == ("message_stop", {"type": "message_stop"})
    reply, deltas, block, partial = found[0][1]["message"], [], None, ""
    assert reply["content"] == []
    for kind, event in found[1:-1]:
        if kind == "message_delta":
            assert block is None
            reply = {**reply, **event["delta"], "usage": event["usage"]}
            continue
        assert event["index"] == len(reply["content"])
        if kind == "content_block_start":
            assert block is None
            block, partial = dict(event["content_block"]), ""
        elif kind == "content_block_stop":
            if block["type"] == "tool_use":
                assert block["input"] == {}
                block["input"] = json.loads(partial)
            reply["content"].append(block)
            block = None
        elif event["delta"]["type"] == "text_delta":
            block["text"] += event["delta"]["text"]
            deltas.append(event["delta"]["text"])
        else:
            assert event["delta"]["type"] == "input_json_delta"
            partial += event["delta"]["partial_json"]
    return _message(reply, deltas)

"""Mooncake's traces and the variants of AIPerf, genai-perf, vLLM and others."""

import json

import pytest

from workloads.base import WorkloadError
from workloads.dryrun import dry_run, dry_runs
from workloads.load import detect, load
from workloads.readers import mooncake
from workloads.readers.mooncake import READER
from workloads.script import ThinkOp


def row(time=0, tokens=600, output=10, ids=(1, 2), **more):
    return {"timestamp": time, "input_length": tokens, "output_length": output, "hash_ids": list(ids), **more}


def without(value, *names):
    return {name: item for name, item in value.items() if name not in names}


def read(tmp_path, *rows, limit=131_072, rule="refuse", name="a.jsonl", **more):
    path = tmp_path / name
    path.write_text("".join((r if isinstance(r, str) else json.dumps(r)) + "\n" for r in rows))
    return READER.read(path, max_model_len=limit, on_overflow=rule, **more)


def dags(*args, **more):
    return dry_runs(read(*args, **more).programs)


def shared(a, b):
    """Leading tokens that two prompts share."""
    total = 0
    for (x, n), (y, m) in zip(a, b, strict=False):
        if x != y:
            break
        total += min(n, m)
        if n != m:
            break
    return total


def test_each_row_is_one_call_and_blocks_are_segments(tmp_path):
    result = read(tmp_path, row(0, 1100, 5, [0, 1, 2]), row(27482, 1024, 7, [0, 3]))
    a, b = dry_runs(result.programs)
    assert [len(dag.calls) for dag in (a, b)] == [1, 1]
    assert [n for _, n in a.calls[0].prompt] == [512, 512, 76]
    assert shared(a.calls[0].prompt, b.calls[0].prompt) == 512
    assert [spec.arrival for spec in result.programs] == pytest.approx([0, 27.482], abs=1e-9)
    assert a.calls[0].output_id != b.calls[0].output_id
    assert (result.read, result.skipped, result.repaired) == (2, {}, {})


def test_a_partial_block_that_two_prompts_share_is_shared(tmp_path):
    a, b = dags(tmp_path, row(0, 600, 5, [0, 1]), row(1, 600, 9, [0, 1]))
    assert a.calls[0].prompt == b.calls[0].prompt


def test_sharing_ends_at_the_first_id_that_differs(tmp_path):
    a, b = dags(tmp_path, row(0, 1536, 5, [0, 1, 2]), row(1, 1536, 5, [0, 3, 2]))
    assert shared(a.calls[0].prompt, b.calls[0].prompt) == 512


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        # Peers accepted these silently.
        ([row(0, 655, 52, [0, 1, 2])], r"a.jsonl:1.hash_ids: 3 ids for a prompt of 655 .* = 2 would be"),
        ([row(), row(0, 1024, 5, [2, 7])],
         r"a.jsonl:2.hash_ids: block 2 is a whole block of 512 here, but the last 88 tokens .* in line 1"),
        ([row(0, 1024, 5, [2, 7]), "", row()], r"a.jsonl:1.hash_ids: block 2 is a whole block .* in line 3"),
        ([row(), row(0, 700)], r"a.jsonl:2.hash_ids: block 2 is 188 tokens here, but the last 88 .* line 1"),
        ([row(delay=5)], r"a.jsonl:1: timestamp and delay in one row"),
        ([row(input_tokens=7)], "input_length = 600 and input_tokens = 7 are two fields for one thing"),
        ([row(), row(text_input="hello")], r"a.jsonl:2: expected one of .* got input_length and text_input"),
        ([{"text_input": "a", "messages": [], "output_length": 1}], "got text_input and messages"),
        ([{"timestamp": 0, "output_length": 1}], "got none"),
        ([row(ids=["x", 2])], r"hash_ids\[0\]: expected a whole number from 0 to 2\*\*64 - 1, got 'x'"),
        ([row(ids=[True, 2])], r"hash_ids\[0\]: .* got True"),
        ([row(ids=[1.5, 2])], r"hash_ids\[0\]: .* got 1.5"),
        ([row(ids=[-1, 2])], r"hash_ids\[0\]: .* got -1"),
        ([row(ids=[1 << 70, 2])], r"hash_ids\[0\]"),
        ([row(tokens=-3)], "a.jsonl:1.input_length: expected a whole number from 0"),
        ([row(output=None)], "a.jsonl:1.output_length: expected a whole number"),
        ([row(output=True)], "a.jsonl:1.output_length"),
        ([row(time="x")], "a.jsonl:1.timestamp: expected a number from 0"),
        ([row(time=-1)], "a.jsonl:1.timestamp"),
        ([row(session_id=[1])], "a.jsonl:1.session_id: expected a string"),
        ([row(), "{"], r"a.jsonl:2:\d+: broken JSON"),
        ([row(), '{"input_length": NaN}'], r"a.jsonl:2:\d+: broken JSON"),
        ([row(), "[1]"], "a.jsonl:2: expected an object, got list of 1"),
        ([{"messages": [{"content": "x"}], "output_length": 1}], "messages with a role"),
        ([row(message_mode=1, session_id="a")], None),
    ],
)  # fmt: skip
def test_errors_name_file_line_and_field(tmp_path, rows, said):
    if said is None:
        assert len(read(tmp_path, *rows).programs) == 1, "fields that mean nothing here are ignored"
        return
    with pytest.raises(WorkloadError, match=said):
        read(tmp_path, *rows)


def test_unknown_fields_are_ignored_and_missing_ones_defaulted(tmp_path):
    result = read(
        tmp_path, row(priority=3, extra={"nvext": {"x": True}}), {"input_length": 9, "output_length": 1}
    )
    assert len(result.programs) == 2
    assert [spec.arrival for spec in result.programs] == [0.0, None]


def test_empty_replies_and_prompts_are_counted(tmp_path):
    result = read(tmp_path, row(output=0), row(tokens=0, ids=[]), row())
    assert result.repaired == {"reply of 0 tokens, 1 taken": 1}
    assert result.skipped == {"request without a prompt left out": 1}
    assert result.where["request without a prompt left out"] == "a.jsonl:2"
    assert (result.read, len(result.programs)) == (3, 2)


def test_rows_on_ticks_and_out_of_order_start_in_order(tmp_path):
    read(tmp_path, row(3000), row(0), row(3000), row(0))
    result = load(str(tmp_path / "a.jsonl"))
    assert [spec.arrival for spec in result.programs] == [0.0, 0.0, 3.0, 3.0]
    assert [spec.index for spec in result.programs] == [0, 1, 2, 3]


def test_a_session_is_a_program_and_delays_are_pauses(tmp_path):
    result = read(
        tmp_path,
        row(1000, 600, 100, [1, 2], session_id="a"),
        row(1500, 600, 100, [1, 2]),
        without(row(0, 1024, 5, [1, 3], session_id="a", delay=2500), "timestamp"),
    )
    session, alone = dry_runs(result.programs)
    assert [len(dag.calls) for dag in (session, alone)] == [2, 1], (
        "each row is one call, no row a whole session"
    )
    first, second = session.calls
    assert isinstance(session.script.ops[1], ThinkOp)
    assert second.delay_s == 2.5
    assert second.prompt[: len(first.prompt)] == first.prompt
    assert second.prompt[len(first.prompt)] == (first.output_id, 100)
    assert second.parents == (("", 0),)
    assert result.repaired == {}
    assert [spec.arrival for spec in result.programs] == [0.0, 0.5]


def test_pauses_from_timestamps_are_counted(tmp_path):
    rows = [row(0, session_id="a"), row(4000, session_id="a"), row(1000, session_id="b")]
    result = read(tmp_path, *rows)
    assert dry_run(result.programs[0]).calls[1].delay_s == 4.0
    assert list(result.repaired.values()) == [1]
    assert list(result.where.values()) == ["a.jsonl:2"]


def test_a_session_out_of_order_is_sorted_and_counted(tmp_path):
    result = read(tmp_path, row(4000, output=4, session_id="a"), row(0, output=9, session_id="a"))
    assert [call.output_tokens for call in dry_run(result.programs[0]).calls] == [9, 4]
    assert result.repaired["requests of a session out of time order, sorted"] == 1


def test_equal_sessions_share_what_their_ids_say_and_no_reply(tmp_path):
    rows = [
        row(t, n, 50, ids, session_id=s) for s in "ab" for t, n, ids in ((0, 600, [1, 2]), (9, 700, [1, 3]))
    ]
    a, b = dags(tmp_path, *rows)
    assert a.calls[0].prompt == b.calls[0].prompt
    # The ids say that the second prompts are equal, too, and so the replies they hold.
    assert a.calls[1].prompt == b.calls[1].prompt
    assert a.calls[1].output_id != b.calls[1].output_id


def test_sessions_whose_replies_differ_part_where_the_ids_do(tmp_path):
    first = row(0, 600, 50, [1, 2])
    a, b = dags(
        tmp_path, {**first, "session_id": "a"}, row(9, 700, 5, [1, 3], session_id="a"),
        {**first, "session_id": "b"}, row(9, 700, 5, [1, 4], session_id="b"),
    )  # fmt: skip
    assert shared(a.calls[1].prompt, b.calls[1].prompt) == 600


def test_a_session_without_ids_continues_and_says_so(tmp_path):
    result = read(
        tmp_path,
        *({"input_length": n, "output_length": 10, "session_id": "a", "delay": 5} for n in (100, 130, 50)),
    )
    calls = dry_run(result.programs[0]).calls
    assert shared(calls[0].prompt, calls[1].prompt) == 100
    assert shared(calls[1].prompt, calls[2].prompt) == 0
    assert result.repaired == {
        "delay before a first call left out": 1,
        "no content given: prompt taken to continue the call before": 1,
    }


def test_texts_share_their_fronts_to_the_character(tmp_path):
    front = "the quick brown fox jumps over the lazy dog. " * 20
    rows = [{"text_input": front + end, "output_length": 5} for end in ("one", "two", "one")]
    result = read(tmp_path, *rows)
    a, b, c = dry_runs(result.programs)
    assert a.calls[0].prompt == c.calls[0].prompt
    assert 150 < shared(a.calls[0].prompt, b.calls[0].prompt) < a.calls[0].prompt_tokens
    assert result.repaired == {"length estimated from the text": 3}
    assert "estimated" in result.parameters["tokenizer"]
    assert read(tmp_path, row()).parameters == {"block_tokens": [512]}


def test_messages_payloads_and_tools_are_text(tmp_path):
    hello = {"role": "user", "content": "Hello, what can you do for me today?"}
    rows = [
        {"messages": [hello], "output_length": 50, "timestamp": 0, "session_id": "s"},
        {"messages": [hello, {"role": "assistant", "content": "All."}, {"role": "user", "content": "Go on"}],
         "output_length": 30, "timestamp": 2000, "session_id": "s"},
        {"payload": {"messages": [hello], "max_tokens": 9}, "timestamp": 0},
        {"payload": {"prompt": "Say it"}, "output_length": 3},
        {"messages": [hello], "tools": [{"type": "function"}], "output_length": 1},
    ]  # fmt: skip
    result = read(tmp_path, *rows)
    session, payload, prompt, tools = dry_runs(result.programs)
    assert shared(session.calls[0].prompt, session.calls[1].prompt) == session.calls[0].prompt_tokens
    assert payload.calls[0].prompt == session.calls[0].prompt
    assert payload.calls[0].output_tokens == 9
    assert prompt.calls[0].prompt_tokens >= 2
    assert tools.calls[0].prompt_tokens > session.calls[0].prompt_tokens
    assert result.repaired["output length taken from the limit of the payload"] == 1


def test_messages_that_are_deltas_go_on_from_the_reply(tmp_path):
    hello = {"role": "user", "content": "Hello there"}
    rows = [
        {"messages": [hello], "output_length": 50, "session_id": "s", "message_mode": "delta"},
        {"messages": [hello], "output_length": 5, "session_id": "s", "message_mode": "delta", "delay": 10},
    ]
    a, b = dry_run(read(tmp_path, *rows).programs[0]).calls
    assert b.prompt == (*a.prompt, (a.output_id, 50), (b.prompt[-1][0], a.prompt_tokens))


def test_vllms_timed_traces_have_blocks_of_16_and_seconds(tmp_path):
    result = read(tmp_path, row(10.0, 40, 2, [7, 8, 9]), row(12.5, 40, 3, [7, 8, 10]))
    a, b = dry_runs(result.programs)
    assert shared(a.calls[0].prompt, b.calls[0].prompt) == 32
    assert [spec.arrival for spec in result.programs] == [0.0, 2.5]


def test_other_names_for_the_same_fields(tmp_path):
    rows = [
        {
            "request_id": "r",
            "input_toks": 100,
            "output_toks": 3,
            "arrival_time": 1787267980.5,
            "queued_ts": 1.0,
        },
        {"input_tokens": 7, "output_tokens": 2, "created_time": 500},
    ]
    result = read(tmp_path, *rows)
    assert [spec.arrival for spec in result.programs] == [1787267980.0, 0.0]
    assert [dag.total_prompt for dag in dry_runs(result.programs)] == [100, 7]


def test_prompts_over_the_context_are_skipped_with_their_line(tmp_path):
    result = read(tmp_path, row(), row(0, 5000, 10, range(10, 20)), limit=1000, rule="skip")
    assert len(result.programs) == 1
    assert result.where == {"prompt over the context of 1000 tokens": "a.jsonl:2"}
    with pytest.raises(WorkloadError, match=r"a.jsonl:2: a call of 5010 tokens"):
        read(tmp_path, row(), row(0, 5000, 10, range(10, 20)), limit=1000)


def test_a_session_is_cut_where_it_outgrows_the_context(tmp_path):
    rows = [row(t, n, 10, range(-(-n // 512)), session_id="a") for t, n in ((0, 512), (1, 1024), (2, 5120))]
    result = read(tmp_path, *rows, row(5, 5120, 10, range(10)), limit=2000, rule="truncate")
    assert [len(dag.calls) for dag in dry_runs(result.programs)] == [2]
    assert result.repaired["truncated to the context of 2000 tokens"] == 1
    assert result.skipped == {"prompt over the context of 2000 tokens": 1}


def test_ids_wider_than_32_bits(tmp_path):
    big = (1 << 64) - 1
    a, b = dags(tmp_path, row(0, 1024, 5, [1, big - 1]), row(0, 1024, 5, [1, big]))
    assert shared(a.calls[0].prompt, b.calls[0].prompt) == 512
    with pytest.raises(WorkloadError, match="whole block"):
        read(tmp_path, row(0, 600, 5, [1, big]), row(0, 1024, 5, [big, 1]))


def test_files_of_a_folder_number_their_blocks_by_themselves(tmp_path):
    for name in ("a.jsonl", "b.jsonl"):
        read(tmp_path, row(), name=name)
    (tmp_path / "empty.jsonl").write_text("")
    (tmp_path / "other.json").write_text('{"a": 1}')
    result = READER.read(tmp_path, max_model_len=9999, on_overflow="skip")
    a, b = dry_runs(result.programs)
    assert shared(a.calls[0].prompt, b.calls[0].prompt) == 0
    assert result.skipped == {"empty file": 1, "file of another format": 1}


def test_it_is_recognised_and_why_is_said(tmp_path):
    read(tmp_path, row())
    reader, why = detect(tmp_path / "a.jsonl")
    assert reader is READER
    assert why == (
        "looks like mooncake because of JSON lines with timestamp, input_length, output_length, hash_ids"
    )


def test_the_rows_are_read_as_they_are_by_the_fast_and_the_slow_way(tmp_path, monkeypatch):
    rows = [row(i, 600 + i, 1 + i, [2 * i, 2 * i + 1]) for i in range(9)]
    rows += [row(i, 600 + i, 1 + i, [2 * i, 2 * i + 1], session_id="s") for i in range(20, 24)]
    fast = dags(tmp_path, *rows)
    monkeypatch.setattr(mooncake, "_PLAIN", {"nothing"})
    monkeypatch.setattr(mooncake, "_IN_SESSION", {"nothing"})
    slow = dags(tmp_path, *rows)
    assert [dag.content_digest() for dag in fast] == [dag.content_digest() for dag in slow]

"""The reader of recordings: what it refuses, leaves out, repairs, and takes together."""

import json
from pathlib import Path

import pytest

from workloads.base import NothingLeft, WorkloadError
from workloads.dryrun import dry_run
from workloads.load import load
from workloads.readers.gateway import NOBODY, READER
from workloads.recorded import DROPPED, LOST, TORN
from workloads.recorded_prompts import AGAIN, SHORTER
from workloads.script import ThinkOp

HEAD = {"event": "recording", "format": "gateway-recording/1", "salt": "ab", "wall": 100.0, "text_block": 128}
HEAD |= {"id_block": 16}


def hashes(*numbers):
    return "".join(f"{number:016x}" for number in numbers)


def piece(number, after, role, size, *names, unit="byte", said=None):
    line = {"event": "piece", "piece": number, "after": after, "role": role, "unit": unit, "size": size}
    line |= {"hashes": hashes(*names)}
    return line if said is None else line | {"said_size": said[0], "said": hashes(*said[1:])}


def call(seq, start, end, tokens=100, output=10, **changes):
    line = {"event": "call", "seq": seq, "program": 0, "named": True, "thread": 0, "index": seq, "tools": 0}
    line |= {"outcome": "finished", "t_arrive": start, "t_end": end, "prompt_tokens": tokens}
    line |= {"output_tokens": output, "model": 0, "prompt": 1, "reply_size": 200, "reply": hashes(50, 51)}
    return line | changes


def write(folder, *lines, name="calls-0001.jsonl", head=HEAD):
    path = folder / name
    path.write_text("".join(json.dumps(line) + "\n" for line in (head, *lines)))
    return path


def read(path, rule="refuse", limit=1 << 20):
    return READER.read(path, max_model_len=limit, on_overflow=rule)


def calls_of(found, program=0):
    return dry_run(found.programs[program]).calls


USER = piece(1, 0, "u", 200, 1, 2)
QUOTE = piece(2, 1, "a", 210, 3, 4, said=(200, 50, 51))
MORE = piece(3, 2, "u", 128, 5)


def test_a_prompt_that_quotes_a_reply_holds_what_was_generated(tmp_path):
    found = read(write(tmp_path, USER, call(0, 1, 2), QUOTE, MORE, call(1, 3, 4, tokens=150, prompt=3)))
    a, b = calls_of(found)
    assert [length for _, length in a.prompt] == [64, 36]
    assert b.prompt == (*a.prompt, (a.output_id, 10), b.prompt[-1])
    assert b.prompt[-1][1] == 40
    assert (found.skipped, found.repaired, found.read) == ({}, {}, 5)


def test_a_reply_that_is_quoted_in_part_is_held_in_part(tmp_path):
    edited = piece(2, 1, "a", 210, 3, 4, said=(200, 50, 99))
    a, b = calls_of(read(write(tmp_path, USER, call(0, 1, 2), edited, call(1, 3, 4, tokens=150, prompt=2))))
    assert b.prompt[:3] == (*a.prompt, (a.output_id, 10 * 128 // 210))
    assert sum(length for _, length in b.prompt) == 150


def test_a_reply_that_is_not_quoted_shares_nothing(tmp_path):
    other = piece(2, 1, "a", 210, 3, 4, said=(200, 98, 99))
    a, b = calls_of(read(write(tmp_path, USER, call(0, 1, 2), other, call(1, 3, 4, tokens=150, prompt=2))))
    assert b.prompt[:2] == a.prompt
    assert a.output_id not in {name for name, _ in b.prompt}


def test_token_ids_are_shared_to_the_token_and_go_on_into_the_reply(tmp_path):
    first = piece(1, 0, "f", 40, 1, 2, 3, unit="token")
    second = piece(2, 0, "f", 64, 1, 2, 4, 5, unit="token")
    lines = [first, call(0, 1, 2, tokens=40, output=30, reply_size=30, reply=hashes(4, 9)), second]
    a, b = calls_of(read(write(tmp_path, *lines, call(1, 3, 4, tokens=64, prompt=2))))
    assert [length for _, length in a.prompt] == [16, 16, 8]
    assert b.prompt == (*a.prompt, (a.output_id, 8), b.prompt[-1])


def test_without_an_id_a_quoted_reply_says_who_goes_on(tmp_path):
    nobody = {"named": False}
    lines = [USER, call(0, 1, 2, **nobody), call(1, 1.5, 2, program=1, **nobody), QUOTE, MORE]
    path = write(tmp_path, *lines, call(2, 3, 4, tokens=150, prompt=3, program=2, **nobody))
    found = read(path)
    assert [len(calls_of(found, k)) for k in range(2)] == [2, 1]
    assert found.repaired == {NOBODY: 1}
    with pytest.raises(WorkloadError, match=r"--strict refuses .*1 x call without an id"):
        load(str(path), strict=True)


def test_what_calls_took_outside_of_their_engine_is_waited_for(tmp_path):
    path = write(tmp_path, USER, call(0, 1, 2, engine_s=0.75), call(1, 3, 4, engine_s=0.5))
    ops = read(path).programs[0].start.args[0].ops
    assert (ops[0], ops[2]) == (ThinkOp(0.25), ThinkOp(1.25))


def test_what_did_not_finish_and_what_was_lost_is_counted(tmp_path):
    lines = [
        USER, call(0, 1, 2), call(1, 3, 4, outcome="disconnected"), call(2, 5, 6, tokens=-1),
        {"event": "dropped", "lines": 2}, call(3, 7, 8, prompt=9), call(4, 9, 10, unreadable="no messages"),
        call(5, 11, 12, output=0),
    ]  # fmt: skip
    found = read(write(tmp_path, *lines))
    left = {"call that did not finish (disconnected)": 1, "call whose tokens nobody counted": 1, DROPPED: 2}
    assert found.skipped == left
    repaired = {LOST: 1, "prompt that shares nothing: no messages": 1, "reply of 0 tokens, 1 taken": 1}
    assert found.repaired == repaired
    assert [op.prompt_tokens for op in calls_of(found)] == [100] * 4
    assert found.where["call whose tokens nobody counted"] == "calls-0001.jsonl:5"


def test_a_last_line_that_a_crash_cut_short_is_left_out(tmp_path):
    path = write(tmp_path, USER, call(0, 1, 2))
    path.write_bytes(path.read_bytes() + b'{"event":"call","seq":1,"t_a')
    assert read(path).skipped == {TORN: 1}
    path.write_bytes(path.read_bytes() + b"\n" + json.dumps(call(2, 3, 4)).encode() + b"\n")
    with pytest.raises(WorkloadError, match=r"calls-0001.jsonl:4:.*broken JSON"):
        read(path)


def test_equal_text_of_another_length_is_repaired(tmp_path):
    found = read(write(tmp_path, USER, call(0, 1, 2), call(1, 3, 4, tokens=110), call(2, 5, 6, tokens=90)))
    assert found.repaired == {AGAIN: 2}
    a, b, c = (call.prompt for call in calls_of(found))
    assert (b[:2], sum(n for _, n in b)) == (a, 110)
    assert (c[0], sum(n for _, n in c)) == (a[0], 90)


def test_a_prompt_with_too_few_tokens_shares_less(tmp_path):
    found = read(write(tmp_path, USER, call(0, 1, 2), QUOTE, MORE, call(1, 3, 4, tokens=60, prompt=3)))
    assert found.repaired == {SHORTER: 1}
    assert sum(length for _, length in calls_of(found)[1].prompt) == 60


def test_starts_of_a_gateway_are_on_one_clock_and_share_no_hash(tmp_path):
    write(tmp_path, USER, call(0, 1, 2))
    write(tmp_path, USER, call(0, 1, 2), name="calls-0002.jsonl", head=HEAD | {"salt": "cd", "wall": 160.0})
    found = load(str(tmp_path))
    assert [spec.arrival for spec in found.programs] == [0.0, 60.0]
    assert calls_of(found, 0)[0].prompt[0][0] != calls_of(found, 1)[0].prompt[0][0]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ({"event": "noise"}, r":2.event: expected piece, model, call or dropped, got 'noise'"),
        (USER | {"unit": "word"}, r":2.unit: expected byte or token"),
        (USER | {"role": "x"}, r":2.role: expected a letter of"),
        (USER | {"after": 1}, r":2.after: expected an earlier piece"),
        (USER | {"size": 500}, r":2.hashes: expected 4 hashes of 16 hexadecimal digits"),
        (USER | {"hashes": "xyz"}, r":2.hashes: expected hexadecimal hashes"),
        (call(0, 2, 1), r":2.t_end: expected t_arrive and, not before it, t_end"),
        (call(0, 1, 2, outcome="well"), r":2.outcome: expected one of finished"),
        (call(0, 1, 2, named=1), r":2.named: expected true or false"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(tmp_path, line, words):
    with pytest.raises(WorkloadError, match=r"calls-0001.jsonl" + words):
        read(write(tmp_path, line))


def test_a_file_without_its_first_line_is_none(tmp_path):
    path = write(tmp_path, USER, head=call(0, 1, 2))
    assert READER.sniff(path) is None
    with pytest.raises(WorkloadError, match='first line must say "format": "gateway-recording/1"'):
        read(path)


def test_a_recording_without_calls_and_calls_over_the_context(tmp_path):
    with pytest.raises(NothingLeft, match="no program is left: there is no call"):
        read(write(tmp_path))
    with pytest.raises(NothingLeft, match="no program is left"):
        read(write(tmp_path, USER, call(0, 1, 2)), rule="skip", limit=50)


def test_the_sample_has_an_error_a_fork_and_a_client_without_an_id():
    found = load(str(Path(__file__).parent / "samples" / "gateway.jsonl"))
    assert found.skipped == {"call that did not finish (error)": 1}
    assert found.repaired == {NOBODY: 2}
    assert [len(dry_run(spec).calls) for spec in found.programs] == [4, 3, 3]

import json

import pytest

from workloads.base import WorkloadError
from workloads.chatbot import WORKLOAD as CHATBOT
from workloads.dryrun import dry_runs
from workloads.own import export
from workloads.readers.own import READER

HEADER = '{"format":"agent-programs","version":1}'
CALL = {"call": ["", 0], "new": [["a", 5]], "reply": ["b", 3]}


def read(path, limit=10**9, rule="refuse"):
    return READER.read(path, max_model_len=limit, on_overflow=rule)


def file(tmp_path, *rows, header=HEADER):
    path = tmp_path / "p.jsonl"
    path.write_text("\n".join([header, *(row if isinstance(row, str) else json.dumps(row) for row in rows)]))
    return path


@pytest.mark.parametrize("name", ["p.jsonl", "p.jsonl.gz"])
def test_round_trip_is_exact_and_repeatable(tmp_path, name):
    dags = dry_runs(CHATBOT.build(20, 2).programs)
    dags[3] = type(dags[3])(dags[3].index, "other", 4.25, dags[3].script, dags[3].calls)
    path = tmp_path / name
    export(dags, path, "mine")
    again = read(path)
    assert again.name == "mine"
    assert [(spec.kind, spec.arrival) for spec in again.programs] == [(d.kind, d.arrival) for d in dags]
    runs = dry_runs(again.programs)
    assert [d.calls for d in runs] == [d.calls for d in dags]
    assert [d.content_digest() for d in runs] == [d.content_digest() for d in dags]
    assert READER.sniff(path)


def test_unknown_fields_are_ignored_and_missing_ones_defaulted(tmp_path):
    row = {"do": [{**CALL, "later": 1}, {"call": ["", 1], "from": ["", 0], "keep": 8, "reply": ["c", 1]}]}
    (dag,) = dry_runs(read(file(tmp_path, row)).programs)
    assert dag.kind == "p"
    assert dag.calls[1].prompt == ((0xA, 5), (0xB, 3))


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("{", "p.jsonl:2:1:2: broken JSON"),
        ([], "p.jsonl:2: expected an object"),
        ({}, "p.jsonl:2.do: expected the list"),
        ({"do": 5}, "p.jsonl:2: do: expected a list of operations, got 5"),
        ({"do": [{"cal": 1}]}, r"do\[0\]: expected one of call, tool"),
        ({"do": [{**CALL, "call": [0, 0]}]}, r"do\[0\].call: expected \[thread, index\]"),
        ({"do": [CALL, CALL]}, r"do\[1\].call: expected an identity no other"),
        ({"do": [{**CALL, "parents": [["9", 0]]}]}, r"parents: \['9', 0\] is no call"),
        ({"do": [{**CALL, "new": [["xyz", 5]]}]}, r"new: expected \[hexadecimal id"),
        ({"do": [{**CALL, "reply": ["a", 0]}]}, r"reply: expected \[hexadecimal id, length of at least 1"),
        ({"do": [{"call": ["", 0], "reply": ["a", 1]}]}, r"new: expected a prompt of at least 1 token"),
        ({"do": [{**CALL, "keep": 5}]}, r"from: expected the call whose tokens"),
        ({"do": [{**CALL, "from": ["", 9]}]}, r"from: expected an earlier call"),
        ({"do": [CALL, {**CALL, "call": ["", 1], "from": ["", 0], "keep": 9}]}, r"keep: expected at most 8"),
        ({"do": [{"tool": "x", "s": -1}]}, r"do\[0\].s: expected a number of seconds"),
        ({"do": [{"cancel": 0}]}, "the task number of a spawn of the program"),
        ({"do": [CALL], "arrival": "now"}, "p.jsonl:2.arrival: expected a number of seconds"),
    ],
)
def test_errors_name_file_line_and_field(tmp_path, row, said):
    with pytest.raises(WorkloadError, match=said):
        read(file(tmp_path, row))


@pytest.mark.parametrize(
    ("header", "said"),
    [
        ("", "the first line must be a header"),
        ('{"format":"x"}', "p.jsonl:1.format: expected"),
        ('{"format":"agent-programs","version":2}', "p.jsonl:1.version: expected 1"),
        ('{"format":"agent-programs","version":1,"programs":3}', "says 3, but 1 lines follow"),
    ],
)
def test_bad_headers(tmp_path, header, said):
    with pytest.raises(WorkloadError, match=said):
        read(file(tmp_path, {"do": [CALL]}, header=header))


def test_overflow_names_the_line(tmp_path):
    with pytest.raises(WorkloadError, match=r"p.jsonl:2: a call of 8 tokens"):
        read(file(tmp_path, {"do": [CALL]}), 7)
    result = read(file(tmp_path, {"do": [CALL]}), 7, "skip")
    assert result.skipped == {"prompt over the context of 7 tokens": 1}

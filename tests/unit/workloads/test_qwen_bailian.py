import json

import pytest

from workloads.base import WorkloadError
from workloads.dryrun import dry_run, dry_runs
from workloads.load import detect
from workloads.readers.qwen_bailian import READER
from workloads.script import JoinOp


def row(chat, parent=-1, time=0.0, tokens=40, output=8, ids=None, **more):
    ids = list(range(tokens // 16)) if ids is None else ids
    return {
        "chat_id": chat, "parent_chat_id": parent, "timestamp": time, "input_length": tokens,
        "output_length": output, "type": "text", "turn": 1, "hash_ids": ids, **more,
    }  # fmt: skip


def read(tmp_path, *rows):
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    return READER.read(tmp_path / "a.jsonl", max_model_len=131_072, on_overflow="refuse")


def test_a_chain_of_chats_is_one_program(tmp_path):
    result = read(
        tmp_path,
        row(159, -1, 61.114, 40, 12, [1, 2]),
        row(7, -1, 62.0, 20, 5, [1]),
        row(160, 159, 70.5, 70, 8, [1, 2, 3, 4]),
    )
    chain, alone = dry_runs(result.programs)
    a, b = chain.calls
    assert b.prompt[: len(a.prompt) + 1] == (*a.prompt, (a.output_id, 12))
    assert b.delay_s == pytest.approx(9.386, abs=1e-6)
    assert alone.calls[0].prompt[0] == a.prompt[0], "equal ids are equal text across chats"
    assert [spec.arrival for spec in result.programs] == pytest.approx([0, 0.886], abs=1e-6)
    assert list(result.repaired.values()) == [1], "the pause holds the first call"
    assert detect(tmp_path / "a.jsonl")[0] is READER


def test_two_answers_to_one_chat_are_branches(tmp_path):
    result = read(
        tmp_path,
        row(1, -1, 0.0, 32, 10, [1, 2]),
        row(2, 1, 5.0, 64, 10, [1, 2, 3, 4]),
        row(3, 1, 9.0, 64, 10, [1, 2, 3, 5]),
        row(4, 3, 20.0, 96, 10, [1, 2, 3, 5, 6, 7]),
    )
    dag = dry_run(result.programs[0])
    assert isinstance(dag.script.ops[-1], JoinOp)
    assert {(c.thread, c.index): c.parents for c in dag.calls} == {
        ("", 0): (),
        ("0", 0): (("", 0),),
        ("1", 0): (("", 0),),
        ("1", 1): (("1", 0),),
    }
    calls = {(c.thread, c.index): c for c in dag.calls}
    assert calls["0", 0].delay_s == 5.0
    assert calls["1", 0].delay_s == 9.0
    common = [x for x, y in zip(calls["0", 0].prompt, calls["1", 0].prompt, strict=False) if x == y]
    assert sum(n for _, n in common) >= 32


def test_ids_may_name_the_rest_of_the_prompt_too(tmp_path):
    a, b = dry_runs(read(tmp_path, row(1, ids=[1, 2, 3]), row(2, ids=[1, 2, 3])).programs)
    assert a.calls[0].prompt == b.calls[0].prompt
    a, b = dry_runs(read(tmp_path, row(1, ids=[1, 2]), row(2, ids=[1, 2])).programs)
    assert a.calls[0].prompt[:2] == b.calls[0].prompt[:2]
    assert a.calls[0].prompt[2] != b.calls[0].prompt[2], "what no id names is not shared"


def test_children_before_their_parents_in_the_file_and_parents_that_are_missing(tmp_path):
    result = read(tmp_path, row(2, 1, 5.0), row(1, -1, 9.0), row(3, 77, 1.0))
    assert [len(dag.calls) for dag in dry_runs(result.programs)] == [2, 1]
    assert result.repaired == {
        "parent that is not in the file, taken as a root": 1,
        "call before the one it follows, taken to follow it at once": 1,
    }


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([row(1), row(1)], "a.jsonl:2.chat_id: 1 is that of a.jsonl:1, too"),
        ([row(1, 2), row(2, 1)], "a.jsonl:1.parent_chat_id: the call follows itself"),
        ([row(1, ids=[1])], r"a.jsonl:1.hash_ids: 1 ids for a prompt of 40 tokens; floor\(40 / 16\) = 2"),
        ([row(1, ids=[1, 2]), row(2, ids=[1, 2, 3])], r"a.jsonl:2.hash_ids: 3 ids .* floor"),
        ([row(1, ids=[1, 2, 3]), row(2, tokens=48, ids=[1, 2, 3])], "a.jsonl:2.hash_ids: block 3 is a whole"),
        ([row(1, ids=[1, "a"])], r"a.jsonl:1.hash_ids\[1\]: expected a whole number"),
        ([row("x")], "a.jsonl:1.chat_id: expected a whole number"),
        ([row(1, timestamp=None)], "a.jsonl:1.timestamp: expected a number of seconds"),
        ([{"chat_id": 1, "input_length": 5}], "a.jsonl:1.output_length"),
    ],
)
def test_errors_name_file_line_and_field(tmp_path, rows, said):
    with pytest.raises(WorkloadError, match=said):
        read(tmp_path, *rows)


def test_a_chain_of_thousands_and_forks_too_deep(tmp_path):
    chain = [row(i, i - 1, float(i), ids=[1, 2]) for i in range(1500)]
    assert len(dry_run(read(tmp_path, *chain).programs[0]).calls) == 1500
    forks = [row(i, (i - 1) // 2 * 2 if i else -1, float(i), ids=[1, 2]) for i in range(300)]
    with pytest.raises(WorkloadError, match="branches nested more than 100 deep"):
        read(tmp_path, *forks)

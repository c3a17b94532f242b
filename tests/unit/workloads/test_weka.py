import gzip
import json

import pytest

from tests.unit.workloads.weka_files import SAMPLES, request, session, subagent, write
from workloads.base import NothingLeft, WorkloadError
from workloads.dryrun import dry_run, dry_runs
from workloads.readers.weka import READER
from workloads.script import JoinOp, SpawnOp, ThinkOp, ToolOp


def read(path, limit=131_072, rule="refuse"):
    return READER.read(path, max_model_len=limit, on_overflow=rule)


def only(tmp_path, *requests, **more):
    """The DAG of one session."""
    return dry_run(read(write(tmp_path, "a.json", session(*requests, **more))).programs[0])


def lengths(call):
    return [length for _, length in call.prompt]


def test_a_prompt_that_continues_holds_the_reply(tmp_path):
    a, b = only(tmp_path, request(0, 130, 10), request(5, 200, 7)).calls
    assert b.prompt == (*a.prompt, (a.output_id, 10), b.prompt[-1])
    assert lengths(b) == [130, 10, 60]
    assert b.parents == (("", 0),)


def test_a_reply_longer_than_the_growth_is_kept_in_part(tmp_path):
    a, b = only(tmp_path, request(0, 130, 500), request(5, 200, 7)).calls
    assert b.prompt == (*a.prompt, (a.output_id, 70))


def test_the_same_prompt_again(tmp_path):
    a, b = only(tmp_path, request(0, 130, 10), request(5, 130, 7)).calls
    assert b.prompt == a.prompt


def test_a_changed_block_ends_the_sharing(tmp_path):
    ids = [1, 9, 3]
    a, b = only(tmp_path, request(0, 200, 10), request(5, 200, 10, ids)).calls
    assert a.prompt[0][0] == b.prompt[0][0]
    assert lengths(b) == [64, 136]


def test_two_ways_on_from_one_prompt_share_only_its_whole_blocks(tmp_path):
    calls = only(
        tmp_path,
        request(0, 130, 10),
        request(5, 200, 10, [1, 2, 3]),
        request(9, 200, 10, [1, 2, 4]),
    ).calls
    assert lengths(calls[1]) == [130, 10, 60]
    assert lengths(calls[2]) == [128, 72]


def test_time_between_calls(tmp_path):
    dag = only(
        tmp_path,
        request(0, think_time=4.0),
        request(5, think_time=3.0),
        request(9, stop="end_turn", think_time=None),
        request(50, think_time=39.0),
        request(60, think_time=None, api_time=None, stop=None, input_types=["text"]),
        request(70, think_time=None),
    )
    waits = [(type(op), getattr(op, "work_s", getattr(op, "seconds", None))) for op in dag.script.ops[1::2]]
    # The first request waits for nothing; 9 - 5 - 2 s; a person; 60 - 50 - 2; the last one is unknown.
    assert waits[:4] == [(ToolOp, 3.0), (ToolOp, 2.0), (ThinkOp, 39.0), (ToolOp, 8.0)]
    assert dag.calls[-1].delay_s == 0.0


def test_an_empty_stop_is_read_from_the_input(tmp_path):
    dag = only(tmp_path, request(0, stop=""), request(9, think_time=7.0, input_types=["text"]))
    assert isinstance(dag.script.ops[1], ThinkOp)


def test_a_sub_agent_the_parent_waits_for(tmp_path):
    inner = [request(0, 64, 5, [70]), request(6, 130, 9, [70, 71], think_time=4.0)]
    dag = only(
        tmp_path,
        request(0),
        # Its result came at 20 after 17.5 s: it started at 2.5, half a second after the reply.
        subagent(20.0, inner, duration_ms=17_500),
        subagent(18.0, inner, duration_ms=15_500),
        request(23, 300, 4, think_time=21.0),
    )
    assert [(c.thread, c.index) for c in dag.calls] == [
        ("", 0),
        ("0", 0),
        ("1", 0),
        ("0", 1),
        ("1", 1),
        ("", 1),
    ]
    assert dag.calls[1].delay_s == dag.calls[2].delay_s == 0.5
    assert dag.calls[5].parents == (("0", 1), ("1", 1))
    assert dag.calls[5].delay_s == 3.0, "the recorded think time holds the sub-agents' time"
    assert dag.calls[1].prompt == dag.calls[2].prompt, "equal hash ids in one session are equal text"


def test_a_sub_agent_nobody_waits_for(tmp_path):
    inner = [request(0, 64, 5, [70])]
    for status, t in (("async_launched", 2.0), ("completed", 2.0)):
        dag = only(
            tmp_path,
            request(0),
            subagent(t, inner, status=status, duration_ms=60_000),
            request(4, 200),
            request(90, 300),
        )
        assert not any(isinstance(op, JoinOp) for op in dag.script.ops)
        assert sum(isinstance(op, SpawnOp) for op in dag.script.ops) == 1
        assert next(c for c in dag.calls if c.index == 1).parents == (("", 0),)


def test_a_sub_agent_without_duration_starts_at_its_time(tmp_path):
    dag = only(tmp_path, request(0), subagent(6.0, [request(0, 64, 5, [70])]), request(30, 200))
    assert [c.thread for c in dag.calls] == ["", "0", ""]
    assert dag.calls[1].delay_s == 4.0
    assert dag.calls[2].delay_s == 30 - 8


def test_sub_agents_of_sub_agents(tmp_path):
    deep = subagent(3.0, [request(0, 64, 5, [80])])
    dag = only(tmp_path, request(0), subagent(2.0, [request(0, 64, 5, [70]), deep]), request(60, 200))
    assert [c.thread for c in dag.calls] == ["", "0", "0.0", ""]
    assert dag.calls[3].parents == (("0.0", 0),)


def test_equal_sessions_share_nothing(tmp_path):
    for name in ("a.json", "b.json"):
        write(tmp_path, name, session(request(), request(5, 200)))
    one, two = dry_runs(read(tmp_path).programs)
    ids = [{s for c in dag.calls for s, _ in (*c.prompt, (c.output_id, 1))} for dag in (one, two)]
    assert not ids[0] & ids[1]
    assert [c.prompt_tokens for c in one.calls] == [c.prompt_tokens for c in two.calls]


def test_repairs_are_counted(tmp_path):
    path = write(
        tmp_path,
        "a.json",
        session(
            request(9, 200, 0),
            request(0, 130, think_time=None, hash_ids=None),
            request(20, 0, ids=[]),
            subagent(30, []),
        ),
    )
    result = read(path)
    assert result.repaired == {
        "sub-agent without requests left out": 1,
        "request without a prompt left out": 1,
        "requests out of time order, sorted": 1,
        "hash_ids missing, prompt taken to continue the one before": 1,
        "reply of 0 tokens, 1 taken": 1,
    }
    assert set(result.where.values()) == {"a.json"}
    assert [c.prompt_tokens for c in dry_run(result.programs[0]).calls] == [130, 200]


def test_missing_hash_ids_continue_the_prompt(tmp_path):
    a, b = only(tmp_path, request(0, 130, 10), request(5, 300, 7, hash_ids=None)).calls
    assert b.prompt[:2] == (*a.prompt, (a.output_id, 10))


def test_overflow(tmp_path):
    write(tmp_path, "fits.json", session(request()))
    write(tmp_path, "long.json", session(request(0, 130), request(5, 400)))
    with pytest.raises(WorkloadError, match=r"long.json: a call of 410 tokens .* context of 300"):
        read(tmp_path, 300)
    result = read(tmp_path, 300, "skip")
    assert (len(result.programs), result.read) == (1, 2)
    assert result.skipped == {"prompt over the context of 300 tokens": 1}
    assert result.where["prompt over the context of 300 tokens"] == "long.json"
    result = read(tmp_path, 300, "truncate")
    assert [len(dag.calls) for dag in dry_runs(result.programs)] == [1, 1]
    assert result.repaired == {"truncated to the context of 300 tokens": 1}
    with pytest.raises(NothingLeft, match="no session is left: 2 x prompt over the context of 50"):
        read(tmp_path, 50, "skip")


def test_truncation_in_a_sub_agent_keeps_the_parent(tmp_path):
    inner = [request(0, 64, 5, [70]), request(6, 400, 9, range(70, 76))]
    inner[1]["hash_ids"] = list(inner[1]["hash_ids"])
    path = write(tmp_path, "a.json", session(request(0), subagent(6.0, inner), request(90, 200)))
    dag = dry_run(read(path, 300, "truncate").programs[0])
    assert [(c.thread, c.index) for c in dag.calls] == [("", 0), ("0", 0), ("", 1)]
    assert dag.calls[2].parents == (("0", 0),)


def test_a_folder_with_other_files(tmp_path):
    write(tmp_path, "a.json", session(request()))
    write(tmp_path, "empty.json", "")
    write(tmp_path, "broken.json", '{"requests": [')
    write(tmp_path, "index.json", {"files": ["a.json"]})
    write(tmp_path, "none.json", session())
    write(tmp_path, "README.md", "text")
    (tmp_path / "z.json.gz").write_bytes(gzip.compress(json.dumps(session(request())).encode()))
    result = read(tmp_path)
    assert len(result.programs) == 2
    assert result.skipped == {
        "broken JSON": 1,
        "empty file": 1,
        "not a Weka session (an object with requests[])": 1,
        "session without requests": 1,
    }
    assert result.where["broken JSON"].startswith("broken.json:1:15")
    assert READER.sniff(tmp_path)


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ("", "a.json: empty file"),
        ("{", "a.json:1:2: broken JSON"),
        ({"a": 1}, "a.json: not a Weka session"),
        (session(), "a.json: session without requests"),
        (
            session(request(ids=[1])),
            r"requests\[0\].hash_ids: 1 ids for a prompt of 130 .* = 2 would be right",
        ),
        (session(request(ids=[1, "x"])), r"hash_ids\[1\]: expected a whole number"),
        (session(request(type="z")), r"requests\[0\].type: expected n or s or subagent, got 'z'"),
        (session({"type": "n", "out": 1}), r"requests\[0\].in: expected a whole number"),
        (session(request(t=-1.0)), r"requests\[0\].t: expected a number of seconds"),
        (session(request(out=-5)), r"requests\[0\].out: expected a whole number"),
        (session(request(), 7), r"requests\[1\]: expected an object, got 7"),
        (session(request(), subagent(1, [{"in": "x"}])), r"requests\[1\].requests\[0\].in"),
        (session(request(), block_size=0), "a.json.block_size"),
        (session(request(tokens=0, ids=[])), "no request with a prompt"),
        ('{"requests": [{"in": NaN}]}', "NaN is no JSON number"),
    ],
)
def test_errors_name_file_record_and_field(tmp_path, document, said):
    with pytest.raises(WorkloadError, match=said):
        read(write(tmp_path, "a.json", document))


@pytest.mark.skipif(not SAMPLES.is_dir(), reason="the public sessions are not here")
def test_the_public_sessions():
    result = read(SAMPLES, rule="skip")
    assert (result.read, len(result.programs)) == (16, 13)
    assert result.skipped == {"prompt over the context of 131072 tokens": 3}
    assert result.where["prompt over the context of 131072 tokens"] == (
        "trace_0051.json, trace_0073.json, trace_0282.json"
    )
    dags = dry_runs(result.programs)
    hits = [dag.optimal_hits() / dag.total_prompt for dag in dags if len(dag.calls) > 20]
    assert all(0.85 < share < 0.99 for share in hits)
    # The three of trace_0274 run concurrently, and the parent waits for all of them.
    assert [len(op.scripts) for op in dags[7].script.ops if isinstance(op, JoinOp)] == [3]

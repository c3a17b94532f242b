import json

import pytest

from workloads.base import WorkloadError
from workloads.dryrun import dry_run, dry_runs
from workloads.load import detect
from workloads.readers.tracelab import READER
from workloads.script import ToolOp

HEADER = "id,input_len,output_len,arrival_time,round_idx,tool_wait_after_ms,prefix_len"


def read(tmp_path, text, name="a.csv"):
    path = tmp_path / name
    path.write_text(text)
    return READER.read(path, max_model_len=131_072, on_overflow="refuse")


def lines(*rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


def test_rounds_keep_their_prefix_and_wait_for_tools(tmp_path):
    result = read(
        tmp_path,
        f"{HEADER}\n"
        "0,100,20,1500.5,0,250.0,0\n"
        "1,70,5,2500.0,0,0.0,0\n"
        "0,30,10,1500.5,1,0.0,120\n"
        "0,40,10,1500.5,2,0.0,110\n",
    )
    session, other = dry_runs(result.programs)
    a, b, c = session.calls
    assert b.prompt == (*a.prompt, (a.output_id, 20), b.prompt[-1])
    assert b.delay_s == 0.25
    assert isinstance(session.script.ops[1], ToolOp)
    assert c.prompt[:2] == (a.prompt[0], (a.output_id, 10)), "the prefix ends inside the reply"
    assert [call.prompt_tokens for call in session.calls] == [100, 150, 150]
    assert [spec.arrival for spec in result.programs] == pytest.approx([1.5005, 2.5], abs=1e-9)
    assert other.calls[0].prompt[0] not in a.prompt
    assert result.repaired == {}
    assert detect(tmp_path / "a.csv")[0] is READER


def test_the_json_lines_have_other_names_and_tools(tmp_path):
    tools = [{"tool_wall_latency_ms": ms} for ms in (1000, None, 500)]
    first = {"provider": "claude", "session_id": "s", "round_index": 3, "tools": tools}
    first |= {"prefix_tokens": 50, "newly_append_tokens": 60, "output_tokens": 9}
    second = {**first, "round_index": 5, "prefix_tokens": 500, "tools": []}
    result = read(tmp_path, lines(second, first), "a.jsonl")
    calls = dry_run(result.programs[0]).calls
    assert [call.prompt_tokens for call in calls] == [110, 560]
    assert calls[1].delay_s == 1.5
    assert result.repaired == {
        "prefix of a session's first round, taken as text of its own": 1,
        "round missing before this one": 1,
        "prefix longer than what the session said before, the rest taken as text of its own": 1,
    }
    assert result.programs[0].arrival is None
    assert detect(tmp_path / "a.jsonl")[1].startswith(
        "looks like tracelab because of JSON lines with session_id"
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"{HEADER}\n0,1,1,0,0,0,0\n0,1,1,0,0,0,2\n", "a.csv:3: round 0 is in a.csv:2, too"),
        (f"{HEADER}\n0,0,1,0,0,0,0\n", "a.csv:2: a prompt of 0 tokens"),
        (f"{HEADER}\n0,x,1,0,0,0,0\n", "a.csv:2.input_len: expected a number"),
        (f"{HEADER}\n0,1,1,0,0,-5,0\n", "a.csv:2.tool_wait_after_ms: expected a number from 0"),
        ("id,input_len\n0,1\n", "a.csv:1: .* missing"),
    ],
)
def test_errors_name_file_line_and_column(tmp_path, text, said):
    with pytest.raises(WorkloadError, match=said):
        read(tmp_path, text)


def test_errors_in_json_lines_name_the_field(tmp_path):
    row = {"session_id": "s", "round_idx": 0, "prefix_len": 0, "input_len": 5, "output_len": 1}
    for wrong, said in (
        ({"output_len": 1.5}, "a.jsonl:1.output_len"),
        ({"session_id": None}, "a.jsonl:1.session_id"),
        ({"tool_wait_after_ms": "x"}, "a.jsonl:1.tool_wait_after_ms: expected a number of milliseconds"),
    ):
        with pytest.raises(WorkloadError, match=said):
            read(tmp_path, lines({**row, **wrong}), "a.jsonl")

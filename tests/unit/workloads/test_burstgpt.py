import pytest

from workloads.base import WorkloadError
from workloads.dryrun import dry_runs
from workloads.load import detect, load
from workloads.readers.burstgpt import READER
from workloads.script import ThinkOp

OLD = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type"
NEW = "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type"


def read(tmp_path, *rows):
    (tmp_path / "a.csv").write_text("\n".join(rows) + "\n")
    return READER.read(tmp_path / "a.csv", max_model_len=131_072, on_overflow="refuse")


def test_old_files_lack_two_columns(tmp_path):
    result = read(tmp_path, OLD, "5,ChatGPT,472,18,490,Conversation log", "45,GPT-4,1087,230,1317,API log")
    assert [spec.arrival for spec in result.programs] == [0.0, 40.0]
    dags = dry_runs(result.programs)
    assert [(dag.total_prompt, dag.total_output, dag.calls[0].model) for dag in dags] == [
        (472, 18, "ChatGPT"),
        (1087, 230, "GPT-4"),
    ]
    assert detect(tmp_path / "a.csv")[0] is READER


def test_failed_calls_are_left_out_and_counted(tmp_path):
    result = read(tmp_path, OLD, "5,ChatGPT,472,0,472,Conversation log", "6,GPT-4,7,0,0,x", "9,GPT-4,7,1,8,x")
    assert result.skipped == {"failed call (0 response tokens) left out": 2}
    assert result.where["failed call (0 response tokens) left out"] == "a.csv:2, a.csv:3"
    assert (result.read, len(result.programs)) == (3, 1)


def test_sessions_are_programs_and_pauses_leave_out_the_call_itself(tmp_path):
    result = read(
        tmp_path,
        NEW,
        "0,s1,4,ChatGPT,100,20,120,x",
        "1,,2,ChatGPT,50,5,55,x",
        "10,s1,3,ChatGPT,150,30,180,x",
        "12,s1,1,ChatGPT,40,5,45,x",
    )
    session, alone = dry_runs(result.programs)
    assert [len(dag.calls) for dag in (session, alone)] == [3, 1]
    assert [call.delay_s for call in session.calls] == [0.0, 6.0, 0.0]
    assert isinstance(session.script.ops[1], ThinkOp)
    assert session.calls[1].prompt[:2] == (*session.calls[0].prompt, (session.calls[0].output_id, 20))
    assert session.calls[2].prompt[0] not in session.calls[1].prompt, "shorter: it continues nothing"
    assert result.repaired == {"no content given: prompt taken to continue the call before": 1}


def test_a_session_without_elapsed_times_says_what_its_pauses_hold(tmp_path):
    result = read(tmp_path, "Session ID,Timestamp,Response tokens,Request tokens", "s,0,5,9", "s,4,5,9")
    assert dry_runs(result.programs)[0].calls[1].delay_s == 4.0
    assert list(result.repaired.values()) == [1]


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([OLD, "5,ChatGPT,472,18,491,x"], r"a.csv:2.Total tokens: expected 472 \+ 18 = 490, got '491'"),
        ([OLD, "x,ChatGPT,472,18,490,x"], "a.csv:2.Timestamp: expected a number"),
        ([OLD, "5,ChatGPT,472"], "a.csv:2: expected 6 columns"),
        (["5,ChatGPT,472,18,490,x"], "a.csv:1: .* missing"),
    ],
)
def test_errors_name_file_line_and_column(tmp_path, rows, said):
    with pytest.raises(WorkloadError, match=said):
        read(tmp_path, *rows)


def test_two_months_of_arrivals_are_more_than_can_be_replayed_at_once(tmp_path):
    read(tmp_path, OLD, "0,M,1,1,2,x", "9,M,1,1,2,x", "5000000,M,1,1,2,x")
    path = str(tmp_path / "a.csv")
    with pytest.raises(WorkloadError, match=r"the last of 3 programs arrives 5000000 s after the first"):
        load(path)
    assert [spec.arrival for spec in load(path, n=2).programs] == [0.0, 9.0]
    assert load(path, scale_rate=100).programs[2].arrival == 50000.0
    assert len(load(path, rate=1.0).programs) == 3

import pytest

from workloads.base import WorkloadError
from workloads.dryrun import dry_runs
from workloads.load import detect, load
from workloads.readers.azure import READER

HEADER = "TIMESTAMP,ContextTokens,GeneratedTokens"


def read(tmp_path, text, rule="refuse", limit=131_072):
    path = tmp_path / "a.csv"
    path.write_bytes(text.encode())
    return READER.read(path, max_model_len=limit, on_overflow=rule)


def test_seven_digits_crlf_and_no_final_newline(tmp_path):
    text = f"{HEADER}\r\n2023-11-16 18:15:46.6805900,374,44\r\n2023-11-16 18:15:50.9951690,396,109"
    result = read(tmp_path, text)
    assert [spec.arrival for spec in result.programs] == pytest.approx([0, 4.314579], abs=2e-9)
    dags = dry_runs(result.programs)
    assert [(dag.total_prompt, dag.total_output) for dag in dags] == [(374, 44), (396, 109)]
    assert dags[0].calls[0].prompt[0][0] != dags[1].calls[0].prompt[0][0], "nothing is shared"
    assert (result.read, result.skipped, result.repaired) == (2, {}, {})
    assert detect(tmp_path / "a.csv")[
        1
    ] == f"looks like azure because of a CSV with the columns {HEADER}".replace(",", ", ")


def test_hundred_nanoseconds_a_week_later(tmp_path):
    text = f"{HEADER}\n2024-05-10 00:00:00.0000000+00:00,1,1\n2024-05-17 00:00:00.1234567+00:00,1,1\n"
    result = read(tmp_path, text)
    assert result.programs[1].arrival == pytest.approx(7 * 86400 + 0.1234567, abs=2e-9)


def test_newest_first_other_columns_and_other_order(tmp_path):
    text = "Model,GeneratedTokens,TIMESTAMP,ContextTokens\nx,7,2023-11-16T18:15:47Z,10\n"
    text += "y,8,2023-11-16T18:15:46Z,20\n"
    read(tmp_path, text)
    result = load(str(tmp_path / "a.csv"))
    assert [spec.arrival for spec in result.programs] == [0.0, 1.0]
    assert [dag.total_output for dag in dry_runs(result.programs)] == [8, 7]


def test_zeros_are_counted(tmp_path):
    row = "2023-11-16 18:15:46,{},{}\n"
    result = read(tmp_path, f"{HEADER}\n" + row.format(5, 0) + row.format(0, 5) + row.format(5, 5))
    assert result.repaired == {"reply of 0 tokens, 1 taken": 1}
    assert result.skipped == {"request without a prompt left out": 1}
    assert result.where["request without a prompt left out"] == "a.csv:3"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "a.csv: empty; the first line must name the columns TIMESTAMP"),
        ("2023-11-16 18:15:46,374,44\n", r"a.csv:1: .* TIMESTAMP, .* missing \(a file without a header\?\)"),
        (f"{HEADER}\n2023-11-16 18:15:46,374\n", "a.csv:2: expected 3 columns as in the header, got 2"),
        (f"{HEADER}\nyesterday,374,44\n", "a.csv:2.TIMESTAMP: expected a time like"),
        (f"{HEADER}\n2023-13-16 18:15:46,374,44\n", "a.csv:2.TIMESTAMP"),
        (f"{HEADER}\n\n2023-11-16 18:15:46,3x,44\n", "a.csv:3.ContextTokens: expected a number, got '3x'"),
        (f"{HEADER}\n2023-11-16 18:15:46,3.5,44\n", "a.csv:2.ContextTokens: expected a whole number"),
        (f"{HEADER}\n2023-11-16 18:15:46,374,-4\n", "a.csv:2.GeneratedTokens: expected a number from 0"),
        (f"{HEADER}\n2023-11-16 18:15:46,374,nan\n", "a.csv:2.GeneratedTokens"),
        (f"{HEADER},TIMESTAMP\n", "a.csv:1: two columns are named 'TIMESTAMP'"),
        (f'{HEADER}\n"2023,1,1\n', "a.csv:2: broken CSV"),
    ],
)
def test_errors_name_file_line_and_column(tmp_path, text, said):
    with pytest.raises(WorkloadError, match=said):
        read(tmp_path, text)


def test_bytes_that_are_no_text(tmp_path):
    (tmp_path / "a.csv").write_bytes(f"{HEADER}\n".encode() + b"\xff\xfe,1,1\n")
    with pytest.raises(WorkloadError, match=r"a.csv:2: not UTF-8 text"):
        READER.read(tmp_path / "a.csv", max_model_len=9, on_overflow="skip")

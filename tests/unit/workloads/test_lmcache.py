import json

import pytest

from workloads.base import NothingLeft, WorkloadError
from workloads.dryrun import dry_run, dry_runs
from workloads.load import detect, load
from workloads.readers.lmcache import READER
from workloads.tokens import counter

SYSTEM = "You are a helpful agent who answers questions about the weather of every city. " * 5


def row(time, text, reply="It rains.", session="s"):
    return {"timestamp": time, "input": text, "output": reply, "session_id": session}


def write(path, *rows):
    path.write_text("".join(json.dumps(r) + "\n" for r in rows))
    return path


def read(path, **more):
    return READER.read(path, max_model_len=131_072, on_overflow="refuse", **more)


def test_newest_first_is_sorted_and_history_is_shared(tmp_path):
    first = SYSTEM + "Paris?"
    path = write(
        tmp_path / "a.jsonl",
        row(1_760_000_007_500_000, first + "It rains." + " And in Rome tomorrow?", "Sun."),
        row(1_760_000_000_000_000, first),
    )
    result = read(path)
    a, b = dry_run(result.programs[0]).calls
    assert b.prompt[: len(a.prompt)] == a.prompt
    assert b.prompt[len(a.prompt)][0] == a.output_id, "the reply stands behind the prompt it answered"
    assert b.delay_s == 7.5
    count = counter().count
    assert (a.prompt_tokens, a.output_tokens) == (count(first), count("It rains."))
    assert result.repaired == {
        "length estimated from the text": 2,
        "pause taken from the times of two requests: it holds the time of the first one": 1,
        "requests of a session out of time order, sorted": 1,
    }
    assert detect(path)[0] is READER


def test_equal_text_is_shared_between_sessions_and_nothing_else(tmp_path):
    path = write(
        tmp_path / "a.jsonl",
        row(0, SYSTEM + "Paris?", session="a"),
        row(1, SYSTEM + "Rome?", session="b"),
        row(2, "Rome?", session="c"),
    )
    a, b, c = (dag.calls[0].prompt for dag in dry_runs(read(path).programs))
    assert a[0] == b[0]
    assert a[1] != b[1]
    assert c[0] not in (*a, *b)


def test_empty_outputs_and_inputs_are_counted(tmp_path):
    path = write(tmp_path / "a.jsonl", row(0, "Hello", ""), row(1, "", "x"))
    result = read(path)
    assert result.repaired["reply of 0 tokens, 1 taken"] == 1
    assert result.skipped == {"request without a prompt left out": 1}


def test_empty_files(tmp_path):
    (tmp_path / "empty.jsonl").write_text("")
    with pytest.raises(WorkloadError, match=r"empty.jsonl: the file is empty"):
        load(str(tmp_path / "empty.jsonl"))
    with pytest.raises(NothingLeft, match="no program is left"):
        load(str(tmp_path / "empty.jsonl"), fmt="lmcache")
    write(tmp_path / "a.jsonl", row(0, "Hello"))
    assert load(str(tmp_path)).skipped == {"empty file": 1}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"timestamp": "x"}, "a.jsonl:1.timestamp: expected a whole number"),
        ({"input": 5}, "a.jsonl:1.input: expected a string"),
        ({"output": ["x"]}, "a.jsonl:1.output: expected a string"),
        ({"session_id": ""}, "a.jsonl:1.session_id: expected the session's name"),
    ],
)
def test_errors_name_file_line_and_field(tmp_path, change, said):
    with pytest.raises(WorkloadError, match=said):
        read(write(tmp_path / "a.jsonl", {**row(0, "Hello"), **change}))


def test_characters_of_many_bytes_are_counted_once(tmp_path):
    # A peer cut blocks inside a character and had its text twice.
    text = "数据" * 300 + "🙂" * 50
    path = write(tmp_path / "a.jsonl", row(0, text), row(1, text[:-1]), row(2, text[:301] + "é"))
    calls = dry_run(read(path).programs[0]).calls
    count = counter().count
    assert calls[0].prompt_tokens == count(text)
    assert calls[2].prompt_tokens == count(text[:301] + "é")


def test_an_unknown_tokenizer_is_an_error(tmp_path):
    path = write(tmp_path / "a.jsonl", row(0, "Hello"))
    with pytest.raises(WorkloadError, match=r"no tokenizer.json|needs the tokenizers library"):
        load(str(path), parameters={"tokenizer": str(path)})
    with pytest.raises(WorkloadError, match="has no parameter 'tokeniser': did you mean 'tokenizer'"):
        load(str(path), parameters={"tokeniser": "x"})

import os

import pytest

from tests.unit.workloads.weka_files import request, session, write
from workloads import files
from workloads.base import WorkloadError
from workloads.dag import program_hash
from workloads.dryrun import dry_runs
from workloads.load import load, reader_names, workload_names


async def my_agent(s):
    await s.call(new=10 + s.key % 50, output=5)


@pytest.fixture
def traces(tmp_path):
    for i in range(4):
        write(tmp_path, f"{i}.json", session(request(i, 130), request(i + 5, 200)))
    return tmp_path


def ids(dag):
    return {segment for call in dag.calls for segment, _ in call.prompt}


def test_names():
    assert {"chatbot", "mcts"} <= set(workload_names())
    assert {"own", "weka"} <= set(reader_names())


def test_generators():
    result = load("chatbot:paper", n=3, seed=2, parameters={"calls.max": "2"}, rate=4.0)
    assert (len(result.programs), result.rate, result.read) == (3, 4.0, 0)
    assert result.parameters["calls"]["max"] == 2
    assert len(load("mcts").programs) == 700


def test_the_digest_names_everything_but_the_seed():
    base = load("chatbot", n=3, seed=1).digest
    assert base == load("chatbot", n=3, seed=2).digest
    others = [
        load("chatbot", n=4),
        load("chatbot", n=3, rate=2.0),
        load("chatbot", n=3, parameters={"think_s": "1"}),
        load("mcts", n=3),
    ]
    assert len({base, *(other.digest for other in others)}) == 5


def test_a_short_context_ends_conversations_but_refuses_searches():
    assert load("chatbot", n=100, max_model_len=4096).repaired
    with pytest.raises(WorkloadError, match=r"mcts program 0: a call of .* does not fit the context of 1600"):
        load("mcts", n=2, max_model_len=1600)
    cut = load("mcts", n=2, max_model_len=1700, on_overflow="truncate")
    assert all(dag.longest <= 1700 for dag in dry_runs(cut.programs))
    assert cut.repaired == {"truncated to the context of 1700 tokens": 2}
    with pytest.raises(WorkloadError, match="no program is left: 2 x prompt over the context"):
        load("mcts", n=2, max_model_len=1600, on_overflow="skip")
    assert load("mcts", n=2, max_model_len=1600, parameters={"token_scale": "1/16"}).longest < 200


def test_a_trace_keeps_its_recorded_times(traces):
    result = load(str(traces))
    assert [spec.arrival for spec in result.programs] == [0.0, 1.0, 2.0, 3.0]
    assert (result.rate, result.read) == (None, 4)
    assert len(load(str(traces), n=2).programs) == 2
    with pytest.raises(WorkloadError, match=r"has 4 usable programs, 9 were asked for; give a rate"):
        load(str(traces), n=9)


def test_a_rate_draws_without_replacement_then_repeats_under_new_ids(traces):
    result = load(str(traces), rate=0.5, n=10, seed=3)
    dags = dry_runs(result.programs)
    assert all(spec.arrival is None for spec in result.programs)
    assert [spec.index for spec in result.programs] == list(range(10))
    originals = [ids(dag) for dag in dry_runs(load(str(traces)).programs)]
    assert sorted(originals.index(ids(dag)) for dag in dags[:4]) == [0, 1, 2, 3]
    everything = [segment for dag in dags for segment in ids(dag)]
    assert len(everything) == len(set(everything)), "no copy shares a prefix with another"
    again = load(str(traces), rate=0.5, n=10, seed=3)
    assert program_hash(dry_runs(again.programs)) == program_hash(dags)
    other = load(str(traces), rate=0.5, n=10, seed=4)
    assert program_hash(dry_runs(other.programs)) != program_hash(dags)
    assert other.digest == result.digest
    assert len(load(str(traces), closed=True, n=6).programs) == 6


def test_the_digest_of_a_trace_follows_its_content(traces):
    before = load(str(traces)).digest
    write(traces, "0.json", session(request(0, 131)))
    assert load(str(traces)).digest != before


def test_functions_by_import():
    result = load(f"{__name__}:my_agent", n=3)
    assert len({dag.total_prompt for dag in dry_runs(result.programs)}) > 1
    assert load("workloads.chatbot:Chatbot", n=2).name == "chatbot:paper"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"spec": "chatbott"}, "no workload 'chatbott', and no such file: did you mean 'chatbot'"),
        ({"spec": "chatbot:papr"}, "no preset 'papr': did you mean 'paper'"),
        (
            {"spec": "chatbot", "parameters": {"call.max": "2"}},
            "no parameter 'call.max': did you mean 'calls.max'",
        ),
        ({"spec": "chatbot", "parameters": {"calls.mx": "2"}}, "no parameter 'calls.mx': did you mean 'max'"),
        ({"spec": "chatbot", "parameters": {"calls.max": "x"}}, "calls.max: expected a number, got 'x'"),
        ({"spec": "chatbot", "parameters": {"calls": "x"}}, "calls is a table"),
        ({"spec": "chatbot", "parameters": {"calls.dist": "gama"}}, "did you mean 'gamma'"),
        ({"spec": "chatbot", "parameters": {"token_scale": "0"}}, "token_scale must be above 0"),
        ({"spec": "mcts", "parameters": {"p_success": "2"}}, "p_success must be a number from 0 to 1"),
        ({"spec": "mcts", "parameters": {"iterations": "1/2"}}, "iterations must be"),
        ({"spec": "chatbot", "rate": 0.0}, "above 0 programs/s"),
        ({"spec": "chatbot", "rate": float("nan")}, "above 0 programs/s"),
        ({"spec": "chatbot", "n": 0}, "must be at least 1, got 0"),
        ({"spec": "chatbot", "on_overflow": "skp"}, "did you mean 'skip'"),
        ({"spec": "chatbot", "fmt": "weka"}, "is for traces"),
        ({"spec": "nowhere/x.json"}, "no file or folder nowhere/x.json"),
        ({"spec": "no.such:thing"}, "No module named 'no'"),
        ({"spec": "json:dumps"}, "neither a Workload"),
    ],
)
def test_errors_say_what_would_be_right(arguments, said):
    with pytest.raises(WorkloadError, match=said):
        load(**arguments)


def test_unreadable_traces(tmp_path):
    (tmp_path / "empty.json").write_text("")
    (tmp_path / "text.csv").write_text("a,b\n1,2\n")
    with pytest.raises(WorkloadError, match=r"empty.json: the file is empty"):
        load(str(tmp_path / "empty.json"))
    with pytest.raises(WorkloadError, match="no reader recognises this"):
        load(str(tmp_path / "text.csv"))
    with pytest.raises(WorkloadError, match="no format 'wka': did you mean 'weka'"):
        load(str(tmp_path / "text.csv"), fmt="wka")
    with pytest.raises(WorkloadError, match=r"text.csv:1:1: broken JSON"):
        load(str(tmp_path / "text.csv"), fmt="weka")
    with pytest.raises(WorkloadError, match="has no parameter 'a'"):
        load(str(tmp_path), fmt="weka", parameters={"a": "1"})


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.json", "[]", "an empty list "),
        ("a.json", "[1, 2]", "not an object but list of 2 "),
        ("a.json", "3", "not an object but 3 "),
        ("a.json", "{}", "an object without fields "),
        ("a.json", '{"b": 1, "a": 2}', "an object with the fields a, b "),
        ("a.json", '{\n"a": 1,\n}', "3:1: broken JSON"),
        ("a.jsonl", '{"x": 1}\n{', "an object with the fields x "),
    ],
)
def test_a_file_no_reader_recognises_says_why(name, text, said, tmp_path):
    path = write(tmp_path, name, text)
    for spec in (path, tmp_path):
        with pytest.raises(WorkloadError) as error:
            load(str(spec))
        place = "" if spec == path else f"{name}: "
        assert f"no reader recognises this: {place}{said}" in str(error.value)
        assert "\n" not in str(error.value)


def test_a_file_whose_name_is_no_utf8_is_read(traces):
    os.rename(os.fsencode(traces / "3.json"), os.fsencode(traces) + b"/caf\xe9.json")
    result = load(str(traces))
    assert len(result.programs) == 4
    assert result.digest.isalnum()
    with pytest.raises(WorkloadError, match=r"caf\\xe9.json: the name is not UTF-8 text"):
        load(os.fsdecode(os.fsencode(traces) + b"/caf\xe9.json"))


def test_an_empty_folder_and_a_folder_of_too_much(tmp_path, traces, monkeypatch):
    (tmp_path / "inner").mkdir()
    with pytest.raises(WorkloadError, match=f"^no files in {tmp_path / 'inner'}$"):
        load(str(tmp_path / "inner"))
    monkeypatch.setattr(files, "MOST_ENTRIES", 3)
    with pytest.raises(WorkloadError, match="more than 3 entries"):
        load(str(traces))


def test_what_may_not_be_read_is_named(traces, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: path.name != "2.json")
    for spec in (traces, traces / "2.json"):
        with pytest.raises(WorkloadError, match=f"^permission denied: {traces / '2.json'}$"):
            load(str(spec))
    monkeypatch.undo()

    def denied(path):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(os, "scandir", denied)
    with pytest.raises(WorkloadError, match=f"^permission denied: {traces}$"):
        load(str(traces))

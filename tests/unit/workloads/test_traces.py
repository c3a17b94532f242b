"""What load() makes of a trace: which programs, in which order, when, and with which pauses."""

import json

import pytest

from tests.unit.workloads.weka_files import request, session, write
from workloads.base import NothingLeft, WorkloadError
from workloads.dryrun import dry_run, dry_runs
from workloads.load import detect, load
from workloads.own import export
from workloads.rows import Programs

FLAT = {"timestamp": 0, "input_length": 600, "output_length": 5, "hash_ids": [0, 1]}


def rows(path, count=6, **more):
    text = (
        json.dumps(
            {**FLAT, "timestamp": 2000 * (i // 2), "output_length": 1 + i, "hash_ids": [0, i + 1], **more}
        )
        for i in range(count)
    )
    path.write_text("\n".join(text))
    return str(path)


@pytest.fixture
def flat(tmp_path):
    return rows(tmp_path / "a.jsonl")


@pytest.fixture
def turns(tmp_path):
    path = tmp_path / "s.jsonl"
    lines = [
        json.dumps({**FLAT, "session_id": s, "timestamp": t, "input_length": n, "hash_ids": [k, k + n]})
        for k, s in ((0, "a"), (10, "b"))
        for t, n in ((0, 600), (30_000, 700))
    ]
    path.write_text("\n".join(lines))
    return str(path)


def test_programs_are_made_when_asked_for(flat):
    programs = load(flat).programs
    assert isinstance(programs, Programs)
    assert programs[1].key == load(flat).programs[1].key
    assert [p.index for p in programs[2:4]] == [2, 3]
    assert programs[-1].arrival == 4.0
    with pytest.raises(IndexError):
        programs[6]
    assert [p.arrival for p in load(flat, n=3).programs] == [0.0, 0.0, 2.0]


def test_asking_for_more_than_there_is(flat):
    with pytest.raises(WorkloadError, match=r"a.jsonl has 6 usable programs, 7 were asked for; give a rate"):
        load(flat, n=7)
    assert len(load(flat, n=7, rate=1.0).programs) == 7


def test_drawn_programs_come_once_before_one_comes_again_under_other_ids(flat):
    result = load(flat, n=14, rate=2.0, seed=3)
    dags = dry_runs(result.programs)
    outputs = [dag.total_output for dag in dags]
    assert sorted(outputs[:6]) == sorted(outputs[6:12]) == [1, 2, 3, 4, 5, 6]
    assert {spec.arrival for spec in result.programs} == {None}
    front = [dag.calls[0].prompt[0] for dag in dags]
    assert len(set(front[:6])) == 1, "one round shares what the trace shares"
    assert len({front[0], front[6], front[12]}) == 3, "rounds share nothing"
    again = load(flat, n=14, rate=2.0, seed=3)
    assert [dag.content_digest() for dag in dry_runs(again.programs)] == [
        dag.content_digest() for dag in dags
    ]
    assert [dag.total_output for dag in dry_runs(load(flat, n=14, rate=2.0, seed=4).programs)] != outputs


def test_scale_rate_divides_the_arrivals_and_is_reported(flat, tmp_path):
    result = load(flat, scale_rate=4.0)
    assert [p.arrival for p in result.programs] == [0.0, 0.0, 0.5, 0.5, 1.0, 1.0]
    assert result.repaired == {"recorded arrivals divided by 4": 6}
    assert result.parameters["scale_rate"] == 4.0
    assert result.digest != load(flat).digest
    (tmp_path / "w").mkdir()
    for name, t in (("a", 3.0), ("b", 9.0)):
        write(tmp_path / "w", f"{name}.json", session(request(t)))
    assert [p.arrival for p in load(str(tmp_path / "w"), scale_rate=2.0).programs] == [0.0, 3.0]


def test_scale_rate_needs_arrivals(flat, tmp_path):
    with pytest.raises(WorkloadError, match="with a rate or a concurrency there are none"):
        load(flat, rate=1.0, scale_rate=2.0)
    with pytest.raises(WorkloadError, match="--scale-rate must be from"):
        load(flat, scale_rate=0.0)
    (tmp_path / "b.jsonl").write_text('{"input_length": 5, "output_length": 1}')
    with pytest.raises(WorkloadError, match=r"b.jsonl has no recorded arrivals for --scale-rate"):
        load(str(tmp_path / "b.jsonl"), scale_rate=2.0)


def test_cap_idle_bounds_pauses_and_is_reported(turns, tmp_path):
    assert [dry_run(p).calls[1].delay_s for p in load(turns).programs] == [30.0, 30.0]
    result = load(turns, cap_idle=4.0)
    assert [dry_run(p).calls[1].delay_s for p in result.programs] == [4.0, 4.0]
    assert result.repaired["pause or tool over 4 s cut to it"] == 2
    assert result.digest != load(turns).digest
    assert [dry_run(p).calls[1].delay_s for p in load(turns, n=3, rate=1.0, cap_idle=0.0).programs] == [
        0.0
    ] * 3
    (tmp_path / "w").mkdir()
    write(tmp_path / "w", "a.json", session(request(0), request(9, 200, think_time=50.0)))
    result = load(str(tmp_path / "w"), cap_idle=5.0, n=2, rate=1.0)
    assert [dry_run(p).calls[1].delay_s for p in result.programs] == [5.0, 5.0]
    assert result.repaired == {"pause or tool over 5 s cut to it": 1}


def test_generators_have_nothing_to_cap_or_scale():
    with pytest.raises(WorkloadError, match="--cap-idle is for traces"):
        load("chatbot", n=1, cap_idle=1.0)
    with pytest.raises(WorkloadError, match="--cap-idle must be from 0"):
        load("chatbot", n=1, cap_idle=-1.0)


def test_strict_refuses_what_would_be_left_out_or_changed(tmp_path, flat):
    assert len(load(flat, strict=True, cap_idle=1.0).programs) == 6
    path = rows(tmp_path / "b.jsonl", 2)
    empty = {**FLAT, "output_length": 0, "hash_ids": [0, 90]}
    long = {**FLAT, "input_length": 51_200, "hash_ids": list(range(1000, 1100))}
    with open(path, "a") as file:
        file.write(f"\n{json.dumps(empty)}\n{json.dumps(long)}")
    said = (
        r"b.jsonl: --strict refuses what would be skipped or repaired: "
        r"1 x prompt over the context of 9000 tokens \(b.jsonl:4\); "
        r"1 x reply of 0 tokens, 1 taken \(b.jsonl:3\)"
    )
    with pytest.raises(WorkloadError, match=said):
        load(path, strict=True, max_model_len=9000)
    result = load(path, max_model_len=9000)
    assert (result.skipped, result.repaired) == (
        {"prompt over the context of 9000 tokens": 1},
        {"reply of 0 tokens, 1 taken": 1},
    )


def test_what_was_skipped_is_in_the_hash(tmp_path, flat):
    digests = {load(flat, max_model_len=limit).digest for limit in (131_072, 65_536)}
    assert len(digests) == 1, "nothing was skipped at either"
    assert load(flat, max_model_len=603).digest not in digests


def test_two_readers_that_recognise_it_are_both_named(tmp_path, flat):
    write(tmp_path, "w.json", session(request(0)))
    with pytest.raises(WorkloadError) as error:
        load(str(tmp_path))
    said = str(error.value)
    assert f"{tmp_path.name} looks like mooncake because of JSON lines with timestamp" in said
    assert "weka because of requests[] with hash_ids" in said
    assert f"mooncake@{tmp_path.name} or weka@{tmp_path.name}" in said
    result = load(str(tmp_path), fmt="mooncake")
    assert (len(result.programs), result.skipped) == (6, {"file of another format": 1})
    assert detect(tmp_path, "weka")[1] == "weka, as asked for"


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.csv", "x,y\n1,2\n", "no reader recognises this: a CSV that begins 'x,y' "),
        ("a.csv", "0,0,0,,0,0\n", "a CSV that begins '0,0,0,,0,0', without a header "),
        ("a.jsonl.gz", "", "the file is empty"),
    ],
)
def test_what_no_reader_knows_is_described(tmp_path, name, text, said):
    (tmp_path / name).write_text(text)
    with pytest.raises(WorkloadError, match=said):
        load(str(tmp_path / name))


def test_an_export_is_the_same_programs(turns, flat, tmp_path):
    tree = [
        {"chat_id": i, "parent_chat_id": p, "timestamp": t, "input_length": 32 + 16 * t, "output_length": 9,
         "hash_ids": list(range(10 * (i > 2), 10 * (i > 2) + 2 + t))}
        for i, p, t in ((1, -1, 0), (2, 1, 1), (3, 1, 2), (4, 3, 5))
    ]  # fmt: skip
    (tmp_path / "t.jsonl").write_text("\n".join(json.dumps(row) for row in tree))
    for path in (turns, flat, str(tmp_path / "t.jsonl")):
        dags = dry_runs(load(path).programs)
        export(dags, tmp_path / "own.jsonl")
        again = dry_runs(load(str(tmp_path / "own.jsonl")).programs)
        assert [dag.content_digest() for dag in again] == [dag.content_digest() for dag in dags]
        assert [dag.arrival for dag in again] == [dag.arrival for dag in dags]
    assert len(dags[0].script.ops) == 2, "a call and its branches"


def test_every_record_left_out_is_said(tmp_path):
    path = rows(tmp_path / "b.jsonl", 2)
    with pytest.raises(
        NothingLeft, match="no program is left: 2 x prompt over the context of 300 tokens"
    ) as error:
        load(path, max_model_len=300)
    assert error.value.limit == 300

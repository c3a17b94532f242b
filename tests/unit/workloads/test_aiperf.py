import json

import pytest

from workloads import turns
from workloads.base import WorkloadError
from workloads.dryrun import dry_run, dry_runs
from workloads.readers import aiperf
from workloads.script import CallOp, JoinOp, SpawnOp, ThinkOp


def read(folder, *rows, limit=131_072):
    path = folder / "input.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return aiperf.READER.read(path, max_model_len=limit, on_overflow="refuse")


def only(folder, *rows):
    (spec,) = read(folder, *rows).programs
    return dry_run(spec)


def turn(text, tokens=10, **more):
    return {"messages": [{"role": "user", "content": text}], "max_tokens": tokens,
            "extra": {"ignore_eos": True}, **more}  # fmt: skip


def session(name, *turns, **more):
    return {"session_id": name, "turns": list(turns), **more}


def ops(script):
    """A script as nested lists: a call is its (thread, index)."""
    found = []
    for op in script.ops:
        match op:
            case CallOp():
                found.append(f"{op.thread}#{op.index}")
            case ThinkOp():
                found.append(op.seconds)
            case JoinOp():
                found.append([ops(inner) for inner in op.scripts])
            case SpawnOp():
                found.append({"spawn": ops(op.script)})
    return found


# single_turn


def test_a_line_is_a_program_that_arrives_at_its_timestamp(tmp_path):
    result = read(
        tmp_path,
        {"text": "one", "timestamp": 500, "output_length": 7},
        {"texts": ["two", {"name": "x", "contents": ["three"]}], "timestamp": 2500.5, "output_length": 9},
    )
    one, two = dry_runs(result.programs)
    assert [spec.arrival for spec in result.programs] == [0.0, pytest.approx(2.0005, abs=1e-9)]
    assert [(len(d.calls), d.calls[0].output_tokens) for d in (one, two)] == [(1, 7), (1, 9)]
    assert len(two.calls[0].prompt) == 2
    assert result.repaired == {"length estimated from the text": 2}


def test_lines_of_one_session_follow_each_other_with_their_own_prompts(tmp_path):
    dag = only(
        tmp_path,
        {"text": "one", "session_id": "s", "output_length": 5},
        {"text": "two words", "session_id": "s", "output_length": 5, "delay": 1500},
    )
    assert ops(dag.script) == ["#0", 1.5, "#1"]
    assert len(dag.calls[1].prompt) == 1


def test_equal_lines_share_nothing(tmp_path):
    one, two = dry_runs(
        read(tmp_path, {"text": "x", "output_length": 5}, {"text": "x", "output_length": 5}).programs
    )
    assert one.calls[0].prompt[0][0] != two.calls[0].prompt[0][0]


def test_a_missing_length_is_taken_and_said(tmp_path):
    result = read(tmp_path, {"text": "x"}, {"text": "y", "extra": {"max_tokens": 44}})
    assert [d.total_output for d in dry_runs(result.programs)] == [turns.DEFAULT_OUTPUT, 44]
    assert result.repaired[turns.NO_LENGTH] == result.repaired[turns.AT_MOST] == 1


def test_unknown_fields_are_ignored(tmp_path):
    result = read(tmp_path, {"text": "x", "output_length": 5, "category": "sport"})
    assert aiperf.READER.sniff(tmp_path / "input.jsonl")
    assert result.repaired == {"length estimated from the text": 1}
    read(tmp_path, {"text": "x", "label": 1})
    assert aiperf.READER.sniff(tmp_path / "input.jsonl") is None, "a text with a label is any data set"


# multi_turn


def test_turns_grow_and_a_leading_system_turn_is_no_call(tmp_path):
    dag = only(tmp_path, session(
        "s", {"role": "system", "text": "be brief"}, {"text": "one", "output_length": 5},
        {"text": "two", "output_length": 6, "delay": 250},
        {"text": "three", "output_length": 7, "image": "x.png"},
    ))  # fmt: skip
    assert ops(dag.script) == ["#0", 0.25, "#1", "#2"]
    a, b, c = dag.calls
    assert len(a.prompt) == 2
    assert b.prompt[:3] == (*a.prompt, (a.output_id, 5))
    assert c.prompt[:5] == (*b.prompt, (b.output_id, 6))


def test_timestamps_of_later_turns_are_waits_and_that_is_said(tmp_path):
    first, second = ({"text": "a", "timestamp": ms, "output_length": 5} for ms in (1000, 4000))
    result = read(tmp_path, session("s", first, second))
    assert ops(dry_run(result.programs[0]).script) == ["#0", 3.0, "#1"]
    assert result.repaired[aiperf.TIMESTAMPS] == 1


# dag_jsonl


def test_forks_go_on_from_the_context_and_end_the_conversation(tmp_path):
    dag = only(
        tmp_path,
        session("root", turn("plan", forks=["a", "b"])),
        session("a", turn("first part"), turn("tighten")),
        session("b", turn("second part")),
    )
    assert ops(dag.script) == ["#0", [["0#0", "0#1"], ["1#0"]]]
    root, a, b = dag.calls[0], dag.calls[1], dag.calls[2]
    for child in (a, b):
        assert child.prompt[:2] == (*root.prompt, (root.output_id, 10))
        assert child.parents == (("", 0),)


def test_spawns_start_from_nothing_and_the_next_turn_waits(tmp_path):
    dag = only(
        tmp_path,
        session("root", turn("plan", spawns=["a", "b"]), turn("sum up")),
        session("a", turn("part")),
        session("b", turn("part")),
    )
    assert ops(dag.script) == ["#0", [["0#0"], ["1#0"]], "#1"]
    calls = {(c.thread, c.index): c for c in dag.calls}
    assert len(calls["0", 0].prompt) == 1
    assert calls["0", 0].prompt == calls["1", 0].prompt, "equal prompts of one program"
    assert calls["", 1].parents == (("0", 0), ("1", 0))
    assert calls["", 1].prompt[0] == calls["", 0].prompt[0]


def test_join_at_lets_turns_run_beside_the_children(tmp_path):
    root = session(
        "root", turn("0", spawns=[{"children": ["a"], "join_at": 3}]), turn("1"), turn("2"), turn("3")
    )
    dag = only(tmp_path, root, session("a", turn("part")))
    assert ops(dag.script) == ["#0", [["#1", "#2"], ["0#0"]], "#3"]
    assert dag.calls[-1].parents == (("", 2), ("0", 0))
    assert dag.calls[-1].prompt[-1][1] == 1
    assert dag.calls[-1].prompt_tokens == 4 * 1 + 3 * 10


def test_joins_inside_joins_and_joins_that_cross(tmp_path):
    def root(first, second):
        return session(
            "root", turn("0", spawns=[{"children": ["a"], "join_at": first}]),
            turn("1", spawns=[{"children": ["b"], "join_at": second}]), turn("2"), turn("3"), turn("4"),
        )  # fmt: skip

    rest = [session("a", turn("part")), session("b", turn("part"))]
    inside = read(tmp_path, root(4, 3), *rest)
    assert ops(dry_run(inside.programs[0]).script) == ["#0", [["#1", [["#2"], ["1#0"]], "#3"], ["0#0"]], "#4"]
    assert aiperf.CROSSING not in inside.repaired
    crossing = read(tmp_path, root(3, 4), *rest)
    assert ops(dry_run(crossing.programs[0]).script) == [
        "#0",
        [["#1", [["#2"], ["1#0"]]], ["0#0"]],
        "#3",
        "#4",
    ]
    assert crossing.repaired[aiperf.CROSSING] == 1


def test_what_nobody_waits_for(tmp_path):
    dag = only(
        tmp_path,
        session("root", turn("0", forks=[{"child": "b", "background": True}]), turn("1", spawns=["c"]),
                pre_session_spawns=["a"]),
        session("a", turn("before")), session("b", turn("beside")), session("c", turn("behind")),
    )  # fmt: skip
    assert ops(dag.script) == [{"spawn": ["0#0"]}, "#0", {"spawn": ["1#0"]}, "#1", {"spawn": ["2#0"]}]
    calls = {(c.thread, c.index): c for c in dag.calls}
    assert calls["1", 0].prompt[0] == calls["", 0].prompt[0]
    assert calls["0", 0].parents == ()


def test_a_session_two_others_spawn_is_read_twice(tmp_path):
    result = read(
        tmp_path,
        session("x", turn("0", spawns=["a"]), turn("1")),
        session("y", turn("0", spawns=["a"]), turn("1")),
        session("a", turn("part")),
        {"session_id": "o", "orchestrator": True, "spawns": ["x"]},
    )
    assert [len(dag.calls) for dag in dry_runs(result.programs)] == [3, 3]
    assert result.skipped == {"orchestrator conversation, which makes no calls of its own": 1}


def test_whole_prompts_in_every_turn(tmp_path):
    dag = only(tmp_path, session("s", turn("one"), turn("two"), context_mode="message_array_with_responses"))
    assert [c.prompt_tokens for c in dag.calls] == [1, 1]


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([{"text": "x", "delay": 5, "timestamp": 5}], "input.jsonl:1: has delay and timestamp; give one"),
        ([session("s", {"text": "x", "delay": 0, "timestamp": 0})], r"turns\[0\]: has delay and timestamp"),
        ([{"text": "x", "texts": ["y"]}], "input.jsonl:1: has text and texts; give one"),
        ([session("s", {**turn("x"), "text": "y"})], "has text and messages"),
        ([{"text": "x", "output_length": 5, "extra": {"max_tokens": 6}}], "different lengths of one reply"),
        ([{"text": "x", "output_length": 0}], "input.jsonl:1.output_length: expected a whole number from 1"),
        ([{"text": "x", "delay": -1}], "input.jsonl:1.delay: expected a number of milliseconds"),
        ([{"text": "x", "delay": 1e12}], "delay: expected at most 1e9 milliseconds"),
        ([{"text": 5}], "input.jsonl:1.text: expected a string"),
        ([{"words": "x"}], "a line of AIPerf holds text, texts, or turns"),
        ([session("s")], "input.jsonl:1.turns: expected at least one turn"),
        ([session("s", turn("x")), session("s", turn("x"))],
         "input.jsonl:2.session_id: 's' is that of input.jsonl:1"),
        ([session("s", turn("x", forks=["t"]))], r"turns\[0\].forks: no session 't' in the file"),
        ([session("s", turn("x", spawns=[7]))], r"turns\[0\].spawns: no session 7 in the file"),
        ([session("s", turn("x", forks=["t"]), turn("y")), session("t", turn("z"))],
         "forks: expected names in the last"),
        ([session("s", turn("x", spawns=[{"children": ["t"], "join_at": 9}]), turn("y")),
          session("t", turn("z"))],
         "spawns: expected join_at from 1 to 1"),
        ([session("s", turn("x", spawns=["t"])), session("t", turn("y", spawns=["s"]))],
         "there is no first one"),
        ([session("r", turn("x", spawns=["s"])), session("s", turn("x", spawns=["t"])),
          session("t", turn("y", spawns=["s"]))], "sessions start each other: r -> s -> t -> s"),
        ([session("r", turn("x", forks=["t"])), session("s", turn("x", forks=["t"])),
          session("t", turn("y"))],
         "forks: 't' is forked by 'r', too"),
        ([session("s", {"messages": [{"content": "x"}]})], r"messages\[0\]: expected a message with a role"),
        ([session("s", turn("x"), context_mode="other")],
         "context_mode: expected deltas_without_responses or"),
    ],
)  # fmt: skip
def test_contradictions_are_refused_with_line_and_field(tmp_path, rows, said):
    with pytest.raises(WorkloadError, match=said):
        read(tmp_path, *rows)


def test_templates_that_multiply_are_refused(tmp_path):
    rows = [session(f"{i}", turn("x", spawns=[f"{i + 1}"] * 2), turn("y")) for i in range(40)]
    with pytest.raises(WorkloadError, match="more than 16384 calls in one conversation"):
        read(tmp_path, *rows, session("40", turn("z")))

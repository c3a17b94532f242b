"""SWE-agent, OpenHands, tau-bench, ToolBench and Tree-of-Thoughts logs on small inputs, and on real ones."""

import json

import pytest

from tests.unit.workloads.recordings import DATA, word_tokenizer
from workloads.base import NothingLeft, WorkloadError
from workloads.dryrun import dry_run, dry_runs
from workloads.readers import openhands, sweagent, taubench, toolbench, tot_logs
from workloads.script import JoinOp, ThinkOp, ToolOp

REAL = pytest.mark.skipif(not DATA.is_dir(), reason="the public recordings are not here")


def write(folder, name, *documents):
    path = folder / name
    path.write_text("\n".join(json.dumps(document) for document in documents))
    return path


def read(module, path, limit=131_072, rule="refuse", **parameters):
    return module.READER.read(path, max_model_len=limit, on_overflow=rule, parameters=parameters)


def shape(result):
    """(programs, calls, prompt tokens, output tokens)"""
    dags = dry_runs(result.programs)
    calls = sum(len(dag.calls) for dag in dags)
    return len(dags), calls, sum(d.total_prompt for d in dags), sum(d.total_output for d in dags)


def message(role, content, **more):
    return {"role": role, "content": content, **more}


# tau-bench


def episode(*traj, **more):
    return {"task_id": 0, "reward": 1.0, "info": {}, "traj": list(traj), "trial": 0, **more}


POLICY = message("system", "one two three four")


def test_tau_every_reply_is_a_call_that_holds_all_before(tmp_path):
    pytest.importorskip("tokenizers")
    tools = [{"id": "call_1", "function": {"name": "find", "arguments": '{"user": "x"}'}, "type": "function"}]
    path = write(tmp_path, "tau.json", [
        episode(
            POLICY, message("user", "hello there"), message("assistant", None, tool_calls=tools),
            message("tool", "a b c", tool_call_id="call_1", name="find"), message("assistant", "done now"),
            message("user", "###STOP###"),
        ),
        episode(POLICY, message("user", "hello there"), message("assistant", "x")),
    ])  # fmt: skip
    result = read(taubench, path, tokenizer=str(word_tokenizer(tmp_path)))
    one, two = dry_runs(result.programs)
    assert [c.prompt_tokens for c in one.calls] == [6, 6 + 2 + 3], "the call of the tool is two words"
    assert [c.output_tokens for c in one.calls] == [2, 2]
    assert one.calls[1].prompt[:3] == (*one.calls[0].prompt, (one.calls[0].output_id, 2))
    assert one.calls[0].prompt[0] == two.calls[0].prompt[0], "the policy is shared"
    assert one.calls[0].prompt[1][0] != two.calls[0].prompt[1][0], "equal episodes stay apart"
    assert result.repaired == {taubench.UNANSWERED: 1, taubench.NO_TIMES: 2}
    assert "tokenizer.json (sha256" in result.parameters["tokenizer"]


def test_tau_what_real_episodes_hold(tmp_path):
    path = write(tmp_path, "tau.json", [
        episode(message("assistant", "hi, how can I help?"), message("user", "x"), message("assistant", "y")),
        episode(message("user", "only this")),
        episode(),
        episode(message("user", "  "), message("user", "a"), message("user", "b"), message("assistant", "")),
        {"no": "episode"},
    ])  # fmt: skip
    result = read(taubench, path)
    assert (result.read, len(result.programs)) == (5, 2)
    assert sum(result.skipped.values()) == 3
    assert result.skipped["no messages"] == result.skipped["no reply of the model to anything"] == 1
    assert result.repaired["reply of 0 tokens, 1 taken"] == 1
    assert result.repaired[taubench.BLANK] == result.repaired[taubench.STARTS_WITH_REPLY] == 1
    assert result.where["no messages"] == "tau.json#2"


def test_tau_two_replies_in_a_row_are_two_calls(tmp_path):
    rows = [message("user", "x"), message("assistant", "one"), message("assistant", "two")]
    a, b = dry_run(read(taubench, write(tmp_path, "tau.json", [episode(*rows)])).programs[0]).calls
    assert b.prompt == (*a.prompt, (a.output_id, a.output_tokens))


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ([{"a": 1}], "no record of it is an episode"),
        ([], "no episode in it"),
        ([episode(message("user", "x"), {"content": "y"})], r"tau.json#0.traj\[1\]: expected a message"),
        ([episode(message("user", "x"), 5)], r"tau.json#0.traj\[1\]: expected a message"),
        ([episode(message("pilot", "x"))], r"traj\[0\]: expected a message with a known role"),
    ],
)
def test_tau_errors_name_the_place(tmp_path, document, said):
    with pytest.raises(WorkloadError, match=said):
        read(taubench, write(tmp_path, "tau.json", document))


def test_a_folder_with_broken_and_empty_files(tmp_path):
    write(tmp_path, "a.json", [episode(POLICY, message("user", "x"), message("assistant", "y"))])
    (tmp_path / "b.json").write_text("")
    (tmp_path / "c.json").write_text('[{"traj": [')
    result = read(taubench, tmp_path)
    assert (result.read, result.skipped) == (3, {"broken file": 2})
    assert "b.json: no episode in it" in result.where["broken file"]
    assert "c.json:1:12: broken JSON" in result.where["broken file"]
    (tmp_path / "a.json").unlink()
    with pytest.raises(NothingLeft, match=r"no episode is left: 2 x broken file"):
        read(taubench, tmp_path)


def test_a_prompt_over_the_context_is_skipped_and_counted(tmp_path):
    long = episode(message("user", "word " * 300), message("assistant", "y"))
    short = episode(message("user", "x"), message("assistant", "y"))
    result = read(taubench, write(tmp_path, "tau.json", [long, short]), 100, "skip")
    assert (len(result.programs), result.skipped) == (1, {"prompt over the context of 100 tokens": 1})


@REAL
def test_tau_the_public_episodes():
    result = read(taubench, DATA / "taubench" / "gpt-4o-airline-first-24.json")
    # 344 messages of the assistant, 137 of them calls of tools; the first episode has 15.
    assert shape(result)[:2] == (24, 344)
    dags = dry_runs(result.programs)
    assert len(dags[0].calls) == 15
    assert result.skipped == {}
    assert len({dag.calls[0].prompt[0] for dag in dags}) == 1, "one policy"
    assert len({dag.calls[0].prompt[1] for dag in dags}) == 24
    assert shape(result)[2:] == (pytest.approx(921_111, rel=0.02), pytest.approx(22_156, rel=0.02)), "Llama 3"


# SWE-agent


def step(response, action, seconds=None, **more):
    times = {} if seconds is None else {"execution_time": seconds}
    return {"action": action, "observation": "o", "response": response, "thought": response, **times, **more}


def traj(history, trajectory=(), **more):
    return {"environment": "main", "trajectory": list(trajectory), "history": history, "info": {}, **more}


def seen(text):
    return message("user", text, message_type="observation")


TASK = [message("system", "s " * 20, message_type="system_prompt"), seen("the issue")]


def test_swe_steps_are_calls_and_their_tools_take_their_time(tmp_path):
    history = [
        *TASK,
        message("assistant", "list it"),
        seen("a b"),
        message("assistant", "that is it"),
        seen("c"),
    ]
    path = write(tmp_path, "a.traj", traj(
        history, [step("list it", "ls -F\n", 0.25), step("that is it", "submit", 0.5)],
        replay_config=json.dumps({"agent": {"model": {"name": "gpt-4o"}}}),
    ))  # fmt: skip
    result = read(sweagent, path)
    dag = dry_run(result.programs[0])
    assert [op for op in dag.script.ops if isinstance(op, ToolOp)] == [
        ToolOp("ls", 0.25),
        ToolOp("submit", 0.5),
    ]
    assert [c.model for c in dag.calls] == ["gpt-4o"] * 2
    assert dag.calls[1].prompt[:3] == (
        *dag.calls[0].prompt,
        (dag.calls[0].output_id, dag.calls[0].output_tokens),
    )
    assert set(result.repaired) == {sweagent.UNANSWERED, "length estimated from the text"}


def test_swe_old_files_have_no_times(tmp_path):
    path = write(tmp_path, "a.traj", traj([*TASK, message("assistant", "x")], [step("x", "ls")]))
    result = read(sweagent, path)
    assert result.repaired[sweagent.NO_TIMES] == 1
    assert dry_run(result.programs[0]).tool_s == 0.0


def test_swe_demonstrations_are_no_calls_and_shared(tmp_path):
    demo = [message("user", "example", is_demo=True), message("assistant", "example answer", is_demo=True)]
    runs = [traj([TASK[0], *demo, seen(issue), message("assistant", "x")]) for issue in ("one", "two")]
    for name, run in zip("ab", runs, strict=True):
        write(tmp_path, f"{name}.traj", run)
    a, b = dry_runs(read(sweagent, tmp_path).programs)
    assert [len(dag.calls) for dag in (a, b)] == [1, 1]
    assert a.calls[0].prompt[:3] == b.calls[0].prompt[:3]
    assert a.calls[0].prompt[3] != b.calls[0].prompt[3]


def test_swe_elided_observations_end_the_sharing(tmp_path):
    pytest.importorskip("tokenizers")
    history = [*TASK]
    for i in range(4):
        history += [message("assistant", f"step {i}"), seen("w " * 50)]
    config = {"agent": {"history_processor": {"type": "last_n_observations", "n": 2}}}
    path = write(tmp_path, "a.traj", traj(history[:-1], replay_config=config))
    result = read(sweagent, path, tokenizer=str(word_tokenizer(tmp_path)))
    calls = dry_run(result.programs[0]).calls
    # 20 + 2 words, then 2 of a step and 50 seen; the last call sees the first observation as 6 words.
    assert [c.prompt_tokens for c in calls] == [22, 74, 126, 22 + 3 * 2 + 6 + 2 * 50]
    assert calls[3].prompt[:3] == calls[2].prompt[:3]
    assert calls[3].prompt[3] != calls[2].prompt[3]
    assert result.repaired[sweagent.ELIDED] == 1


def test_swe_a_recorded_query_is_the_prompt(tmp_path):
    query = [message("system", "s"), message("user", "what was really sent")]
    path = write(
        tmp_path, "a.traj", traj(TASK, [step("x", "ls", 1.0, query=query), step("y", "ls", 1.0, query=query)])
    )
    one, two = dry_run(read(sweagent, path).programs[0]).calls
    assert one.prompt == two.prompt
    assert len(one.prompt) == 2


def test_swe_totals_of_the_file_win(tmp_path):
    history = [
        *TASK,
        message("assistant", "a reply of some words"),
        seen("what was seen"),
        message("assistant", "x y"),
    ]
    stats = {"tokens_sent": 100, "tokens_received": 20, "api_calls": 2}
    result = read(sweagent, write(tmp_path, "a.traj", traj(history, info={"model_stats": stats})))
    _, _, prompt, output = shape(result)
    assert (prompt, output) == (pytest.approx(100, abs=4), pytest.approx(20, abs=1))
    assert sweagent.SCALED in result.repaired
    stats["tokens_sent"] = 10**6
    result = read(sweagent, write(tmp_path, "b.traj", traj(history, info={"model_stats": stats})))
    assert sweagent.IMPOSSIBLE in result.repaired


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ({"a": 1}, "a.traj: no trajectory"),
        (traj([{"role": "user"}, 7]), r"a.traj.history\[1\]: expected a message"),
        (
            traj([*TASK, message("assistant", "x")], [{"response": "x", "execution_time": -1}]),
            "execution_time",
        ),
        (traj([*TASK, message("assistant", "x")], [7]), r"a.traj.trajectory\[0\]: expected an object"),
        (traj(TASK), "no reply of the model"),
    ],
)
def test_swe_errors_name_the_place(tmp_path, document, said):
    with pytest.raises(WorkloadError, match=said):
        read(sweagent, write(tmp_path, "a.traj", document))


@REAL
def test_swe_the_public_runs():
    result = read(sweagent, DATA / "sweagent")
    new, old = dry_runs(result.programs)
    # 11 and 14 messages of the assistant; the sum of the new file's execution times; the old one has none.
    assert (len(new.calls), len(old.calls)) == (11, 14)
    assert (new.tool_s, old.tool_s) == (pytest.approx(4.339, abs=0.001), 0.0)
    assert result.repaired[sweagent.ELIDED] == result.repaired[sweagent.NO_TIMES] == 1
    assert shape(result)[2:] == (pytest.approx(120_259, rel=0.03), pytest.approx(1_760, rel=0.04)), "Llama 3"


# OpenHands


def action(name, **more):
    return {"action": name, **more}


def observation(name, content, **more):
    return {"observation": name, "content": content, **more}


def metadata(response, name="execute_bash", **usage):
    body = {"id": response, **({"usage": usage} if usage else {})}
    return {"tool_call_metadata": {"function_name": name, "model_response": body}}


def run(*history, **more):
    return {"instance_id": "x", "history": list(history), "metrics": {}, **more}


def test_openhands_old_events(tmp_path):
    path = write(tmp_path, "output.jsonl", run(
        action("message", content="fix it please", wait_for_response=False),
        action("run", command="ls", thought="let us see"),
        observation("run", "a.py"),
        action("message", content="which one?"),
        action("message", content="the first"),
        action("finish", outputs={}, thought="done"),
    ))  # fmt: skip
    result = read(openhands, path)
    dag = dry_run(result.programs[0])
    assert len(dag.calls) == 3
    assert [len(c.prompt) for c in dag.calls] == [1, 3, 5]
    assert set(result.repaired) == {
        openhands.NO_TIMES, openhands.NO_SYSTEM, "length estimated from the text"
    }  # fmt: skip


def test_openhands_events_with_times_usage_and_parallel_tools(tmp_path):
    def at(second):
        return f"2025-01-01T00:00:{second:02d}.500000"

    path = write(tmp_path, "output.jsonl", run(
        action("system", source="agent", timestamp=at(0), args={"content": "you are", "tools": [{"f": 1}]}),
        action("message", source="user", timestamp=at(1), args={"content": "fix it"}),
        observation("recall", "", timestamp=at(1)),
        action("run", source="agent", timestamp=at(4), args={"command": "ls"},
               **metadata("r1", prompt_tokens=900, completion_tokens=40)),
        action("read", source="agent", timestamp=at(4), args={"path": "a"}, **metadata("r1")),
        observation("run", "x", timestamp=at(6)),
        observation("read", "y", timestamp=at(7)),
        action("message", source="agent", timestamp=at(9), args={"content": "ok?"}, **metadata("r2")),
        observation("agent_state_changed", "", timestamp=at(9)),
        action("message", source="user", timestamp=at(29), args={"content": "yes"}),
        action("finish", source="agent", timestamp=at(33), args={"final_thought": "bye"}, **metadata("r3")),
        metrics={"token_usages": [
            {"response_id": "r2", "prompt_tokens": 960, "completion_tokens": 5},
            {"response_id": "r3", "prompt_tokens": 970, "completion_tokens": 6},
        ]},
    ))  # fmt: skip
    result = read(openhands, path)
    dag = dry_run(result.programs[0])
    assert [(c.prompt_tokens, c.output_tokens) for c in dag.calls] == [(900, 40), (960, 5), (970, 6)]
    waits = [(type(op), getattr(op, "work_s", getattr(op, "seconds", None))) for op in dag.script.ops]
    assert [w for w in waits if w[1]] == [(ToolOp, 2.0), (ToolOp, 1.0), (ThinkOp, 20.0)]
    assert result.repaired == {}
    assert result.programs[0].arrival == 0.0


def test_openhands_accumulated_usage_is_differenced(tmp_path):
    def call(name, prompt, output):
        total = {"prompt_tokens": prompt, "completion_tokens": output}
        return action("run", source="agent", command=name, llm_metrics={"accumulated_token_usage": total})

    path = write(tmp_path, "output.jsonl", run(
        action("message", source="user", content="go"), call("a", 500, 20), observation("run", "x"),
        call("b", 1100, 50), observation("run", "x"), call("c", 1000, 10),
    ))  # fmt: skip
    result = read(openhands, path)
    calls = dry_run(result.programs[0]).calls
    assert [(c.prompt_tokens, c.output_tokens) for c in calls[:2]] == [(500, 20), (600, 30)]
    assert result.repaired[openhands.BACKWARDS] == 1


def test_openhands_pairs_and_runs_without_an_agent(tmp_path):
    pair = [
        [action("message", content="go"), observation("null", "")],
        [action("run", command="ls"), observation("run", "x")],
    ]
    path = write(
        tmp_path, "output.jsonl", run(*pair), run(action("message", content="go")), {"history": []}, {}
    )
    result = read(openhands, path)
    assert (len(result.programs), result.read) == (1, 4)
    assert result.skipped["no action of the agent"] == 2
    assert result.where["no action of the agent"] == "output.jsonl:2, output.jsonl:3"


@pytest.mark.parametrize(
    ("document", "said"),
    [
        (run(7), r"output.jsonl:1.history\[0\]: expected an object"),
        (run({"x": 1}), r"history\[0\].action: expected an action or an observation"),
        (run(metrics={"token_usages": [{}]}), "response_id: expected a string"),
        (run(action("message", content="a"), action("run", command="x", **metadata("r", prompt_tokens=-1))),
         "prompt_tokens: expected a whole number"),
        ({"a": 1}, "no record of it is a run"),
    ],
)  # fmt: skip
def test_openhands_errors_name_the_place(tmp_path, document, said):
    with pytest.raises(WorkloadError, match=said):
        read(openhands, write(tmp_path, "output.jsonl", document))


@REAL
def test_openhands_the_public_runs():
    path = DATA / "openhands" / "resolver_mock_output.jsonl"
    result = read(openhands, path)
    costs = [len(json.loads(line)["metrics"]["costs"]) for line in path.read_text().splitlines()]
    # The file bills every call of the model.
    assert [len(dag.calls) for dag in dry_runs(result.programs)] == costs == [4, 22]
    assert shape(result)[2:] == (pytest.approx(178_499, rel=0.02), pytest.approx(7_896, rel=0.02)), "Llama 3"


# ToolBench


def node(kind, text, number=0, children=(), **more):
    return {"node_type": kind, "description": text, "expand_num": number, "children": list(children), **more}


def answer(*children, **more):
    return {"win": True, "tree": {"size": 3, "tree": node("Action Input", "", 0, children)},
            "answer_generation": {"query": "what is it?", "function": [{"name": "f"}], **more}}  # fmt: skip


def reply(name, number, children=(), seen="seen"):
    inner = node("Action Input", "{}", number, children, observation=seen)
    return node("Action", name, 0, [inner])


def test_toolbench_branches_share_their_path(tmp_path):
    path = write(tmp_path, "a.json", answer(
        reply("f", 1, [
            node("Thought", "I give up", 2, [reply("Finish", 3)]),
            node("Thought", "try again", 0, [reply("g", 4)]),
        ])
    ))  # fmt: skip
    calls = dry_run(read(toolbench, path).programs[0]).calls
    assert [c.index for c in calls] == [0, 1, 2, 3]
    assert [c.parents for c in calls[1:]] == [(("", i),) for i in range(3)], "one after the other"
    root, lost, given_up, again = (c.prompt for c in calls)
    assert lost == again == (*root, (calls[0].output_id, calls[0].output_tokens), lost[-1])
    assert given_up[: len(lost)] == lost
    assert calls[1].output_id != calls[3].output_id


def test_toolbench_the_total_of_the_file_wins(tmp_path):
    tree = reply("f", 1, [reply("Finish", 2)], "a longer observation")
    result = read(toolbench, write(tmp_path, "a.json", answer(tree, total_tokens=120, query_count=3)))
    _, _, prompt, output = shape(result)
    assert prompt + output == pytest.approx(120, abs=6)
    assert {toolbench.SCALED, toolbench.MISSING} < set(result.repaired)
    result = read(toolbench, write(tmp_path, "b.json", answer(tree, total_tokens=2)))
    assert toolbench.IMPOSSIBLE in result.repaired


@pytest.mark.parametrize(
    ("document", "said"),
    [
        (answer(reply("f", 1), reply("g", 1)), "expand_num: 1 is the number of another reply"),
        (answer(node("Action", "f", -1)), r"children\[0\].expand_num: expected a whole number"),
        (answer(5), r"a.json.tree.tree.children\[0\]: expected an object"),
        (answer(), "no reply of the model in the tree"),
        ({"tree": {}}, "a.json.tree.tree: expected an object"),
        ({"trys": []}, "no answer with a tree"),
    ],
)
def test_toolbench_errors_name_the_place(tmp_path, document, said):
    with pytest.raises(WorkloadError, match=said):
        read(toolbench, write(tmp_path, "a.json", document))


@REAL
def test_toolbench_the_public_answers():
    result = read(toolbench, DATA / "toolbench")
    answers = [
        json.loads(p.read_text())["answer_generation"] for p in sorted((DATA / "toolbench").rglob("*.json"))
    ]
    dags = dry_runs(result.programs)
    assert [len(dag.calls) for dag in dags] == [a["query_count"] for a in answers] == [3, 4, 12, 5, 24]
    for dag, told in zip(dags, answers, strict=True):
        assert dag.total_prompt + dag.total_output == pytest.approx(told["total_tokens"], rel=0.005)
    assert dags[2].optimal_hits() > 0.7 * dags[2].total_prompt, "siblings share their path"


# Tree of Thoughts


def puzzle(steps, prompt, completion, **more):
    usage = {"prompt_tokens": prompt, "completion_tokens": completion, "cost": 1.0}
    return {"idx": 900, "steps": steps, "ys": [], "infos": [], "usage_so_far": usage, **more}


def level(ys, new_ys, number=0):
    return {"step": number, "x": "4 5 6 10", "ys": ys, "new_ys": new_ys, "values": [1.0] * len(new_ys),
            "select_new_ys": new_ys[:2]}  # fmt: skip


FIRST = ["4 + 5 = 9 (left: 6 9 10)\n", "10 - 4 = 6 (left: 5 6 6)\n", "5 + 4 = 9 (left: 6 9 10)\n"]
SECOND = [FIRST[0] + "6 + 9 = 15 (left: 10 15)\n", FIRST[1] + "6 * 5 = 30 (left: 6 30)\n"]
NAMED = "gpt-4_0.7_propose1_value3_greedy5_start900_end1000.json"


def test_tot_levels_are_proposals_then_judgements(tmp_path):
    steps = [level([""], FIRST), level(FIRST[:2], SECOND, 1)]
    result = read(tot_logs, write(tmp_path, NAMED, [puzzle(steps, 2000, 400)]))
    dag = dry_run(result.programs[0])
    joins = [len(op.scripts) for op in dag.script.ops if isinstance(op, JoinOp)]
    # One state; 2 of 3 candidates (the third is the first) judged three times; two states, 2 candidates.
    assert joins == [1, 6, 2, 6]
    assert sum(c.output_tokens for c in dag.calls) == 400
    requests = [dag.calls[0], *dag.calls[1:7:3], *dag.calls[7:9], *dag.calls[9:15:3]]
    assert sum(c.prompt_tokens for c in requests) == 2000, "samples of one prompt are billed once"
    assert dag.calls[1].prompt == dag.calls[2].prompt == dag.calls[3].prompt
    assert dag.calls[0].prompt[0][0] == dag.calls[7].prompt[0][0], "one template"
    assert dag.calls[7].prompt[0][0] != dag.calls[1].prompt[0][0]
    assert dag.calls[7].parents == tuple((str(i), 0) for i in range(1, 7))
    assert set(result.repaired) == {tot_logs.EVEN}


def test_tot_usage_is_cumulative(tmp_path):
    steps = [level([""], FIRST)]
    path = write(tmp_path, NAMED, [puzzle(steps, 700, 100), puzzle(steps, 1800, 230), puzzle(steps, 600, 90)])
    result = read(tot_logs, path)
    assert [dag.total_output for dag in dry_runs(result.programs)] == [100, 130, 90]
    assert result.repaired[tot_logs.RESTARTED] == 1
    assert result.where[tot_logs.RESTARTED] == f"{NAMED}#2"
    ids = [{c.output_id for c in dag.calls} for dag in dry_runs(result.programs)]
    assert not ids[0] & ids[1], "equal puzzles stay apart"


def test_tot_samples_and_votes(tmp_path):
    name = "gpt-4_1.0_sample2_vote4_greedy1_start0_end100.json"
    result = read(tot_logs, write(tmp_path, name, [puzzle([level([""], ["plan a", "plan b"])], 300, 90)]))
    dag = dry_run(result.programs[0])
    assert [len(op.scripts) for op in dag.script.ops] == [2, 4]
    assert dag.total_output == 90


def test_tot_what_cannot_be_known_is_said(tmp_path):
    steps = [level([""], FIRST)]
    bare = puzzle(steps, 1, 1)
    del bare["usage_so_far"]
    result = read(tot_logs, write(tmp_path, "log.json", [bare, puzzle([], 5, 5), puzzle(steps, 900, 50), {}]))
    assert result.skipped[tot_logs.NO_USAGE] == result.skipped[tot_logs.NO_STEPS] == 1
    assert (len(result.programs), sum(result.skipped.values())) == (1, 3)
    assert result.repaired[tot_logs.UNNAMED] == 1


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ([puzzle([level([""], [1])], 5, 5)], r"steps\[0\].new_ys\[0\]: expected a string"),
        ([puzzle([7], 5, 5)], r"steps\[0\]: expected an object"),
        ([puzzle([level([""], ["a"])], -5, 5)], "prompt_tokens: expected a whole number"),
        ([{"a": 1}], "no record of it is a puzzle"),
    ],
)
def test_tot_errors_name_the_place(tmp_path, document, said):
    with pytest.raises(WorkloadError, match=said):
        read(tot_logs, write(tmp_path, NAMED, document))

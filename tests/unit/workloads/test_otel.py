import json
from datetime import datetime, timedelta

import pytest

from tests.unit.workloads.recordings import DATA
from workloads.base import NothingLeft, WorkloadError
from workloads.dryrun import dry_run, dry_runs
from workloads.readers import otel
from workloads.script import CallOp, JoinOp, SpawnOp, ThinkOp, ToolOp

REAL = pytest.mark.skipif(not DATA.is_dir(), reason="the public recordings are not here")
START = 1_700_000_000


def span(name, start=None, end=None, parent=None, trace="t", **attributes):
    """A span of the flat form; times are seconds after START."""
    row = {"trace_id": trace, "span_id": name, "parent_span_id": parent, "name": name, "attributes": {
        key.replace("__", "."): value for key, value in attributes.items()
    }}  # fmt: skip
    if start is not None:
        begin = datetime(2023, 11, 14, 22, 13, 20)
        row["start_time"] = (begin + timedelta(seconds=start)).isoformat() + "Z"
        row["end_time"] = (begin + timedelta(seconds=end)).isoformat() + "Z"
    return row


def chat(name, start=None, end=None, parent=None, tokens=None, messages=None, reply=None, **more):
    """A call of the model; ``messages`` are (role, text)."""
    if tokens:
        more |= {"gen_ai__usage__input_tokens": tokens[0], "gen_ai__usage__output_tokens": tokens[1]}
    if messages:
        rows = [{"role": role, "content": text} for role, text in messages]
        more["gen_ai__input__messages"] = json.dumps(rows)
    if reply:
        more["gen_ai__output__messages"] = json.dumps([{"role": "assistant", "content": reply}])
    return span(name, start, end, parent, gen_ai__operation__name="chat", **more)


def agent(name, start, end, parent=None, **more):
    return span(name, start, end, parent, gen_ai__operation__name="invoke_agent", **more)


def tool(name, start, end, parent=None):
    return span(name, start, end, parent, gen_ai__operation__name="execute_tool", gen_ai__tool__name=name)


def read(path, limit=131_072, rule="refuse", **parameters):
    return otel.READER.read(path, max_model_len=limit, on_overflow=rule, parameters=parameters)


def file(folder, *spans, name="a.json"):
    path = folder / name
    path.write_text(json.dumps({"trace_id": "x", "spans": list(spans)}))
    return path


def only(folder, *spans):
    """The DAG of one program."""
    (spec,) = read(file(folder, *spans)).programs
    return dry_run(spec)


def ops(script):
    """A script as nested lists: names of calls are their prompt lengths."""
    found = []
    for op in script.ops:
        match op:
            case CallOp():
                found.append(op.prompt_tokens)
            case ToolOp():
                found.append((op.name, op.work_s))
            case ThinkOp():
                found.append(("think", op.seconds))
            case JoinOp():
                found.append([ops(inner) for inner in op.scripts])
            case SpawnOp():
                found.append({"spawn": ops(op.script)})
    return found


def test_an_agent_with_tools(tmp_path):
    dag = only(
        tmp_path,
        agent("root", 0, 20),
        chat("a", 1, 3, "root", (100, 10)),
        tool("search", 3.5, 6.5, "root"),
        chat("b", 7, 9, "root", (150, 20)),
    )
    assert ops(dag.script) == [100, ("between calls", 0.5), ("search", 3.0), ("between calls", 0.5), 150]
    assert [c.output_tokens for c in dag.calls] == [10, 20]


def test_a_sub_agent_the_parent_waits_for_and_one_it_does_not(tmp_path):
    spans = [
        agent("root", 0, 60),
        chat("a", 0, 2, "root", (100, 10)),
        agent("waited", 2, 10, "root"),
        chat("w", 3, 9, "waited", (40, 5)),
        agent("launched", 2, 50, "root"),
        chat("l1", 2, 30, "launched", (50, 5)),
        chat("l2", 31, 50, "launched", (60, 5)),
        chat("b", 12, 14, "root", (150, 10)),
        chat("c", 55, 57, "root", (200, 10)),
    ]
    dag = only(tmp_path, *spans)
    # b began while the launched one went on, so c does not wait for it either.
    launched = {"spawn": [50, ("between calls", 1.0), 60]}
    waited = [[("between calls", 1.0), 40]]
    assert ops(dag.script) == [
        100, launched, waited, ("between calls", 3.0), 150, ("between calls", 41.0), 200
    ]  # fmt: skip
    call_b = next(c for c in dag.calls if c.prompt_tokens == 150)
    assert call_b.parents == (("1", 0),), "the end of the sub-agent it waited for"
    assert next(c for c in dag.calls if c.prompt_tokens == 200).parents == (("", 1),)


def test_an_agent_that_outlives_its_parent_is_not_waited_for(tmp_path):
    dag = only(
        tmp_path,
        agent("root", 0, 60),
        agent("inner", 0, 10, "root"),
        chat("a", 0, 2, "inner", (100, 10)),
        agent("late", 3, 40, "inner"),
        chat("l", 3, 40, "late", (50, 5)),
        chat("b", 12, 14, "root", (150, 10)),
    )
    assert ops(dag.script) == [[[100, {"spawn": [("between calls", 1.0), 50]}]], ("between calls", 10.0), 150]


def test_parallel_sub_agents_are_branches(tmp_path):
    dag = only(
        tmp_path,
        agent("root", 0, 30),
        chat("plan", 0, 2, "root", (100, 10)),
        agent("one", 2, 9, "root"),
        chat("x", 2, 5, "one", (10, 1)),
        chat("y", 6, 9, "one", (12, 1)),
        agent("two", 3, 12, "root"),
        chat("z", 3, 12, "two", (20, 1)),
        chat("end", 13, 15, "root", (150, 10)),
    )
    assert ops(dag.script) == [
        100, [[10, ("between calls", 1.0), 12], [("between calls", 1.0), 20]], ("between calls", 1.0), 150
    ]  # fmt: skip
    assert {c.thread for c in dag.calls if c.prompt_tokens in (10, 12)} != {
        c.thread for c in dag.calls if c.prompt_tokens == 20
    }
    assert len(dag.calls[-1].parents) == 2


def test_no_parents_are_inferred_from_time_and_prefix_and_said(tmp_path):
    question, more = [("user", "a question of some length")], ("user", "another one")
    path = file(
        tmp_path,
        chat("b", 3, 5, messages=[*question, ("assistant", "a reply"), more], reply="b"),
        chat("a", 0, 2, messages=question, reply="a reply"),
    )
    result = read(path)
    dag = dry_run(result.programs[0])
    assert result.repaired == {otel.INFERRED: 1, "length estimated from the text": 1}
    assert result.where[otel.INFERRED] == "a.json: trace t"
    assert [type(op) for op in dag.script.ops] == [CallOp, ThinkOp, CallOp], "a message of the user: a person"
    a, b = dag.calls
    assert b.prompt[:2] == (*a.prompt, (a.output_id, a.output_tokens))


def test_two_conversations_side_by_side_do_not_wait_for_each_other(tmp_path):
    def turn(name, start, end, who, said):
        told = [
            ("user", f"{who} begins"),
            *[m for i in range(said) for m in (("assistant", f"{who}{i}"), ("user", "go"))],
        ]
        return chat(name, start, end, messages=told, reply=f"{who}{said}")

    dag = only(
        tmp_path,
        turn("x0", 0, 2, "x", 0),
        turn("y0", 0, 2, "y", 0),
        turn("x1", 3, 6, "x", 1),
        turn("y1", 3, 5, "y", 1),
    )
    (join,) = dag.script.ops
    assert [[type(op) for op in inner.ops] for inner in join.scripts] == [[CallOp, ThinkOp, CallOp]] * 2
    assert {c.parents for c in dag.calls} == {(), (("0", 0),), (("1", 0),)}


def test_a_call_as_parent_is_what_it_followed(tmp_path):
    path = file(
        tmp_path,
        chat("a", 0, 1, tokens=(10, 1)),
        chat("b", 2, 3, "a", (20, 1)),
        chat("c", 4, 5, "b", (30, 1)),
    )
    result = read(path)
    assert [c.parents for c in dry_run(result.programs[0]).calls] == [(), (("", 0),), (("", 1),)]
    assert otel.INFERRED not in result.repaired


def test_usage_wins_over_the_text(tmp_path):
    dag = only(
        tmp_path,
        chat("a", 0, 1, messages=[("user", "one two three")], reply="a long reply", tokens=(500, 77)),
    )
    assert (dag.total_prompt, dag.total_output) == (500, 77)


def test_sums_of_agents_are_not_counted_again(tmp_path):
    total = {"gen_ai__usage__input_tokens": 999, "gen_ai__usage__output_tokens": 999}
    dag = only(
        tmp_path,
        agent("root", 0, 9, **total),
        chat("a", 0, 1, "root", (10, 1)),
        chat("b", 2, 3, "root", (20, 2)),
    )
    assert (dag.total_prompt, dag.total_output) == (30, 3)


def test_a_span_that_wraps_a_call_is_not_a_second_one(tmp_path):
    path = file(tmp_path, chat("outer", 0, 5, tokens=(10, 1)), chat("inner", 1, 4, "outer", (10, 1)))
    result = read(path)
    assert len(dry_run(result.programs[0]).calls) == 1
    assert result.repaired == {otel.WRAPPER: 1, otel.NO_MESSAGES: 1}


def test_without_messages_a_prompt_continues_the_call_before(tmp_path):
    a, b, c = only(
        tmp_path,
        chat("a", 0, 1, tokens=(100, 10)),
        chat("b", 2, 3, tokens=(150, 10)),
        chat("c", 4, 5, tokens=(40, 10)),
    ).calls
    assert b.prompt == (*a.prompt, (a.output_id, 10), b.prompt[-1])
    assert c.prompt[0][0] != a.prompt[0][0], "shorter: another one"


@pytest.mark.parametrize(
    "attributes",
    [
        {"gen_ai.input.messages": "[{'role': 'user', 'content': 'it\\'s', 'name': None}]",
         "gen_ai.output.text": "fine"},
        {"gen_ai.input.messages": [{"role": "user", "parts": [{"type": "text", "content": "it's"}]}],
         "gen_ai.output.messages": [{"role": "assistant", "parts": [{"type": "text", "content": "fine"}]}]},
        {"gen_ai.prompt.0.role": "user", "gen_ai.prompt.0.content": "it's",
         "gen_ai.completion.0.content": "fine", "llm.request.type": "chat"},
        {"llm.input_messages.0.message.role": "user", "llm.input_messages.0.message.content": "it's",
         "llm.output_messages.0.message.content": "fine", "openinference.span.kind": "LLM"},
        {"gen_ai.prompt": "it's", "gen_ai.completion": "fine", "gen_ai.operation.name": "text_completion"},
        {"gen_ai.input.messages": '{"messages": [{"role": "user", "content": "it\'s"}]}',
         "gen_ai.output.messages": '{"choices": [{"message": {"role": "assistant", "content": "fine"}}]}'},
    ],
    ids=["python", "parts", "numbered", "openinference", "plain", "objects"],
)  # fmt: skip
def test_messages_of_many_forms(tmp_path, attributes):
    row = span("a", 0, 1)
    row["attributes"] = attributes
    call = only(tmp_path, row).calls[0]
    same = only(tmp_path, chat("a", 0, 1, messages=[("user", "it's")], reply="fine")).calls[0]
    assert (call.prompt, call.output_id, call.output_tokens) == (
        same.prompt,
        same.output_id,
        same.output_tokens,
    )


def otlp(name, start, end, parent="", **attributes):
    def value(thing):
        return {"intValue": str(thing)} if isinstance(thing, int) else {"stringValue": thing}

    rows = [{"key": key.replace("__", "."), "value": value(thing)} for key, thing in attributes.items()]
    return {"traceId": "ab", "spanId": name, "parentSpanId": parent, "name": name, "attributes": rows,
            "startTimeUnixNano": str((START + start) * 10**9),
            "endTimeUnixNano": str((START + end) * 10**9)}  # fmt: skip


def test_an_otlp_export_as_json_lines(tmp_path):
    def line(*spans):
        return json.dumps({"resourceSpans": [{"resource": {}, "scopeSpans": [{"spans": list(spans)}]}]})

    usage = {"gen_ai__usage__input_tokens": 100, "gen_ai__usage__output_tokens": 7}
    path = tmp_path / "a.jsonl"
    path.write_text(
        line(otlp("c", 1, 3, "r", gen_ai__operation__name="chat", gen_ai__request__model="m", **usage)) + "\n"
        + line(otlp("r", 0, 9, gen_ai__operation__name="invoke_agent")) + "\n"
        + line(otlp("c", 1, 3, "r", gen_ai__operation__name="chat", **usage)) + "\n"
    )  # fmt: skip
    result = read(path)
    (call,) = dry_run(result.programs[0]).calls
    assert (call.prompt_tokens, call.output_tokens, call.model) == (100, 7, "m")
    assert result.repaired == {otel.TWICE: 1, otel.NO_MESSAGES: 1}
    assert result.where[otel.TWICE] == "a.jsonl:3.resourceSpans[0].scopeSpans[0].spans[0]"


def test_spans_of_the_console_exporter_one_a_line(tmp_path):
    row = chat("a", 0, 1, tokens=(10, 1))
    row = {**row, "context": {"trace_id": "0x1", "span_id": "0x2"}, "parent_id": None}
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps(row) + "\n")
    assert otel.READER.sniff(path)
    assert len(read(path).programs) == 1


def test_a_conversation_over_several_traces_is_one_program(tmp_path):
    path = file(
        tmp_path,
        chat("a", 0, 1, tokens=(10, 1), trace="1", gen_ai__conversation__id="c"),
        chat("b", 5, 6, tokens=(20, 1), trace="2", gen_ai__conversation__id="c"),
        chat("other", 2, 3, tokens=(30, 1), trace="3"),
    )
    result = read(path)
    assert [[c.prompt_tokens for c in dag.calls] for dag in dry_runs(result.programs)] == [[10, 20], [30]]
    assert [spec.arrival for spec in result.programs] == [0.0, 2.0]


def test_equal_traces_in_two_files_share_nothing(tmp_path):
    for name in ("a.json", "b.json"):
        file(tmp_path, chat("a", 0, 1, messages=[("user", "hello")], reply="x"), name=name)
    one, two = dry_runs(read(tmp_path).programs)
    assert one.calls[0].prompt_tokens == two.calls[0].prompt_tokens
    assert one.calls[0].prompt[0][0] != two.calls[0].prompt[0][0]


def test_what_is_left_out_is_counted(tmp_path):
    failed = chat("f", 4, 5, messages=[("user", "x")])
    failed["status"] = {"code": "ERROR"}
    path = file(
        tmp_path,
        chat("a", 0, 1, tokens=(10, 0)),
        chat("no prompt", 2, 3),
        failed,
        span("only http", 0, 1, trace="h", http__method="GET"),
        chat("no time", None, None, tokens=(30, 3), trace="n"),
    )
    result = read(path)
    assert len(result.programs) == 2
    assert result.skipped == {"no call of a model": 1}
    assert result.repaired == {
        otel.FAILED: 1, otel.NO_PROMPT: 1, otel.OTHERS: 1, otel.INFERRED: 1, otel.NO_TIMES: 1,
        otel.NO_MESSAGES: 2,
        "reply of 0 tokens, 1 taken": 1, "program without a time: no recorded arrivals are used": 1,
    }  # fmt: skip


def test_parents_that_go_round_in_a_circle_do_not_hang(tmp_path):
    path = file(
        tmp_path, chat("a", 0, 1, "b", (10, 1)), chat("b", 2, 3, "a", (20, 1)), chat("c", 4, 5, "c", (30, 1))
    )
    assert len(dry_run(read(path).programs[0]).calls) == 3


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ({"a": 1}, r"a.json:1: expected resourceSpans\[\], spans\[\] or a span, got"),
        ({"spans": [7]}, r"a.json:1.spans\[0\]: expected an object"),
        ({"spans": {}}, r"a.json:1.spans: expected a list"),
        ({"resourceSpans": [{"scopeSpans": [{"spans": [{"attributes": 7}]}]}]}, r"spans\[0\].attributes"),
        ({"spans": [chat("a", 0, 1, tokens=(-5, 1))]}, "gen_ai.usage.input_tokens: expected a whole number"),
        (
            {"spans": [chat("a", 0, 1, tokens=("many", 1))]},
            "gen_ai.usage.input_tokens: expected a whole number",
        ),
        ({"spans": [chat("a", 0, 1, gen_ai__input__messages="[5]")]}, "expected a message, got 5"),
        ({"spans": [span("x", 0, 1, http__method="GET")]}, "no program is left"),
        (
            {"spans": [chat(f"{i}", i, 99, f"{i - 1}", (10, 1)) for i in range(70)]},
            "nested more than 60 deep",
        ),
    ],
)
def test_errors_name_the_place(tmp_path, document, said):
    path = tmp_path / "a.json"
    path.write_text(json.dumps(document))
    with pytest.raises(WorkloadError, match=said):
        read(path)


def test_an_empty_list_of_spans(tmp_path):
    with pytest.raises(NothingLeft, match="file without spans"):
        read(file(tmp_path))


@REAL
def test_the_public_spans():
    def found(name):
        result = read(DATA / "otel" / name)
        return result, dry_runs(result.programs)

    result, dags = found("prefix_sharing_example.json")
    # The recorded usage: 50 + 45 + (100 + 180 + 270 + 380) + 40 in, 20 + 15 + (50 + 60 + 70 + 55) + 10 out.
    assert [(len(d.calls), d.total_prompt, d.total_output) for d in dags] == [
        (1, 50, 20), (1, 45, 15), (4, 930, 235), (1, 40, 10)
    ]  # fmt: skip
    assert result.repaired == {}
    assert [spec.arrival for spec in result.programs] == [0.0, 2.0, 4.0, 12.0]
    result, (review,) = found("code_review_workflow.json")
    # A coordinator, three experts at once, a summary; three times. No parents and no usage in the file.
    shape = [
        len(op.scripts) if isinstance(op, JoinOp) else 1
        for op in review.script.ops
        if isinstance(op, (CallOp, JoinOp))
    ]
    assert shape == [1, 3, 1, 1, 3, 1, 1, 3, 1]
    assert [dag.delay_s for dag in review.calls[1:4]] == [0.5, 1.0, 1.5]
    assert result.repaired == {otel.INFERRED: 1, "length estimated from the text": 1}
    _, (support,) = found("customer_support_escalation.json")
    assert len(support.calls) == 9
    assert [len(op.scripts) for op in support.script.ops if isinstance(op, JoinOp)] == [2]
    for name in ("simple_chain.json", "simple_chain_alt.json"):
        _, (chain,) = found(name)
        assert len(chain.calls) == 3
        assert chain.calls[2].prompt[:3] == chain.calls[1].prompt

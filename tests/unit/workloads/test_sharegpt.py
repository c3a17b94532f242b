import gzip
import json
from pathlib import Path

import pytest

from workloads.base import NothingLeft, WorkloadError
from workloads.dryrun import dry_run, dry_runs
from workloads.load import load
from workloads.readers import sharegpt
from workloads.readers.sharegpt import READER
from workloads.tokens import ESTIMATE

SAMPLE = Path(__file__).parents[4] / "shared" / "data" / "sharegpt" / "lengths_500_conversations.csv"


def words(n):
    """A text that is estimated at ``n`` tokens."""
    return " ".join(["to"] * n)


def said(*messages, **more):
    """A ShareGPT record of (role, tokens' worth of text or the text itself)."""
    return {
        "id": "x",
        "conversations": [
            {"from": role, "value": words(text) if isinstance(text, int) else text} for role, text in messages
        ],
        **more,
    }


def write(folder, document, name="a.json"):
    path = folder / name
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return path


def read(path, limit=131_072, rule="refuse"):
    return READER.read(path, max_model_len=limit, on_overflow=rule)


def lengths(result):
    """(new prompt, reply) tokens of each call, per program."""
    shown = []
    for dag in dry_runs(result.programs):
        context, calls = 0, []
        for call in dag.calls:
            calls.append((call.prompt_tokens - context, call.output_tokens))
            context = call.prompt_tokens + call.output_tokens
        shown.append(calls)
    return shown


def turns(tmp_path, *messages):
    result = read(write(tmp_path, [said(*messages)]))
    return lengths(result)[0], set(result.repaired) - {sharegpt.ESTIMATED}


def test_everything_since_the_last_reply_is_the_new_prompt(tmp_path):
    found = turns(
        tmp_path, ("system", 50), ("human", 10), ("gpt", 20), ("user", 5), ("function_call", 7),
        ("observation", 30), ("tool", 4), ("chatgpt", 9), ("human", 1), ("bing", 2), ("user", 3), ("Bard", 8),
    )  # fmt: skip
    assert found == ([(60, 20), (5, 7), (34, 9), (1, 2), (3, 8)], set())


def test_a_conversation_is_one_thread_that_grows(tmp_path):
    path = write(tmp_path, [said(("human", 10), ("gpt", 20), ("human", 5), ("gpt", 7))])
    a, b = dry_run(read(path).programs[0]).calls
    assert b.prompt[: len(a.prompt) + 1] == (*a.prompt, (a.output_id, 20))
    assert b.parents == (("", 0),)
    assert b.tools == ()


@pytest.mark.parametrize(
    ("messages", "calls", "repair"),
    [
        ([("gpt", 9), ("human", 3), ("gpt", 4)], [(12, 4)], {sharegpt.STARTS_WITH_REPLY}),
        ([("human", 3), ("human", 4), ("gpt", 5)], [(7, 5)], {sharegpt.SAME_ROLE}),
        ([("human", 3), ("gpt", 4), ("gpt", 5)], [(3, 9)], {sharegpt.SAME_ROLE}),
        ([("human", 3), ("gpt", 4), ("human", "  \n"), ("gpt", 5)], [(3, 9)],
         {sharegpt.SAME_ROLE, sharegpt.BLANK}),
        ([("human", 3), ("gpt", "")], [(3, 1)], {sharegpt.NO_TOKENS}),
        ([("human", 3), ("gpt", None), ("human", 2), ("gpt", 4)], [(3, 1), (2, 4)], {sharegpt.NO_TOKENS}),
        ([("human", None), ("gpt", 5), ("human", 2), ("gpt", 4)], [(7, 4)],
         {sharegpt.BLANK, sharegpt.STARTS_WITH_REPLY}),
        ([("gpt", ""), ("human", 2), ("gpt", 4)], [(2, 4)], {sharegpt.BLANK}),
        ([("human", 3), ("gpt", 4), ("human", 5)], [(3, 4)], {sharegpt.UNANSWERED}),
        ([("system", 30), ("gpt", 4), ("human", 5), ("gpt", 6)], [(30, 4), (5, 6)], set()),
        ([("human", 3), ("tool", 2), ("tool", 2), ("gpt", 4)], [(7, 4)], set()),
    ],
)  # fmt: skip
def test_odd_conversations_are_repaired_and_counted(tmp_path, messages, calls, repair):
    assert turns(tmp_path, *messages) == (calls, repair)


def test_skipped_records_are_counted_with_their_place(tmp_path):
    good = said(("human", 3), ("gpt", 4))
    path = write(
        tmp_path,
        [
            good,
            said(("human", 3)),
            said(("human", 3), ("alien", 4)),
            {"id": 3},
            said(),
            said(("human", ""), ("gpt", 4)),
            7,
            said(("human", 3), ("gpt", {"deep": 1})),
            {"conversations": [{"value": "no role"}, {"value": "at all"}]},
            good,
        ],
    )
    result = read(path)
    assert (len(result.programs), result.read) == (2, 10)
    wanted = "a list of messages, or an object with conversations[] or messages[]"
    assert result.skipped == {
        "one message": 1,
        "message of an unknown role": 1,
        f"not a conversation ({wanted})": 2,
        "no messages": 1,
        "no reply of the model to anything": 1,
        "message whose content is no text": 1,
        "message that is neither a text nor has a role": 1,
    }
    assert result.where["one message"] == "a.json#1"
    assert result.where["message of an unknown role"] == "a.json#2 message 1: 'alien'"
    assert result.where[f"not a conversation ({wanted})"] == "a.json#3, a.json#6"
    assert result.where["message whose content is no text"] == "a.json#7 message 1"


def test_lengths_are_estimated_and_said_to_be_unless_the_file_has_them(tmp_path):
    estimated = read(write(tmp_path, [said(("human", words(10)), ("gpt", "y"))]))
    assert lengths(estimated) == [[(10, 1)]]
    assert estimated.repaired == {"length estimated from the text": 1}
    assert estimated.where[sharegpt.ESTIMATED] == "a.json#0"
    counted = [{"role": "user", "content": words(10), "tokens": 11}, {"role": "assistant", "num_tokens": 3}]
    result = read(write(tmp_path, [{"messages": counted}]))
    assert (lengths(result), result.repaired) == ([[(11, 3)]], {})


def test_openai_messages(tmp_path):
    call = [{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]
    messages = [
        {"role": "user", "content": [{"type": "text", "text": words(10)}, {"type": "image_url"}]},
        {"role": "assistant", "content": None, "tool_calls": call},
        {"role": "tool", "content": words(10)},
        {"role": "assistant", "content": words(10)},
    ]
    assert lengths(read(write(tmp_path, [{"messages": messages}]))) == [
        [(10, ESTIMATE.count(json.dumps(call))), (10, 10)]
    ]


def test_every_shape_of_file_holds_the_same_conversation(tmp_path):
    record = said(("human", 3), ("gpt", 4))
    messages = record["conversations"]
    line = json.dumps(record)
    for number, (document, count) in enumerate(
        [
            ([record], 1),
            (record, 1),
            (f"{line}\n{line}\n", 2),
            ([messages, messages], 2),
            (messages, 1),
            ([[words(3), words(4)]], 1),
            ([{"conversation": messages}], 1),
            ([{"items": messages}], 1),
        ]
    ):  # fmt: skip
        result = read(write(tmp_path, document, f"{number}.json"))
        assert lengths(result) == [[(3, 4)]] * count
    packed = tmp_path / "p.jsonl.gz"
    packed.write_bytes(gzip.compress(f"{line}\n\n{line}".encode()))
    assert lengths(read(packed)) == [[(3, 4)]] * 2
    assert READER.sniff(packed)


def test_a_system_text_beside_the_messages(tmp_path):
    path = write(tmp_path, [said(("human", 3), ("gpt", 4), system=words(10))])
    assert lengths(read(path)) == [[(13, 4)]]


def ids(dag):
    return {segment for call in dag.calls for segment, _ in (*call.prompt, (call.output_id, 1))}


def test_only_equal_system_prompts_are_shared(tmp_path):
    same = said(("system", "be kind " * 20), ("human", "hello"), ("gpt", "hello"))
    other = said(("system", "be terse " * 20), ("human", "hello"), ("gpt", "hello"))
    one, two, three = dry_runs(read(write(tmp_path, [same, {**same, "id": "y"}, other])).programs)
    assert ids(one) & ids(two) == {one.calls[0].prompt[0][0]}
    assert not ids(one) & ids(three)
    write(tmp_path, [same], "b.json")
    across = dry_runs(read(tmp_path).programs)
    assert len(across) == 4
    assert len(ids(across[0]) & ids(across[3])) == 1


def test_a_folder_skips_and_counts_what_holds_no_conversation(tmp_path):
    write(tmp_path, [said(("human", 3), ("gpt", 4))])
    write(tmp_path, {"version": 1}, "dataset_info.json")
    write(tmp_path, [1, 2], "numbers.json")
    write(tmp_path, '[{"conversations": [', "cut.json")
    write(tmp_path, "", "empty.json")
    write(tmp_path, "text", "README.md")
    assert READER.sniff(tmp_path)
    result = read(tmp_path)
    assert (len(result.programs), result.read) == (1, 5)
    assert result.skipped == {"broken file": 1, "file without conversations": 3}
    assert result.where["broken file"].startswith("cut.json:1:21: broken JSON")
    assert result.where["file without conversations"] == "dataset_info.json, empty.json, numbers.json"


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ("", "a.json: no record of it is a conversation: a list of messages, or an object with"),
        ({"a": 1}, "a.json: no record of it is a conversation"),
        ("{", "a.json:1:2: broken JSON"),
        ('[{"conversations": []}\n {}]', r"a.json:2:2: broken JSON \(a comma or \] is missing\)"),
        ('[{"conversations": []}] x', r"a.json:1:25: broken JSON \(something follows the array\)"),
        ('[{"conversations": []},]', "a.json:1:24: broken JSON"),
        ('{"a": 1}\n{"a": NaN}', "a.json: NaN is no JSON number"),
        ('{"a": 1}\n{"b"', "a.json:2:5: broken JSON"),
        ('{"a": ' + "9" * 5000 + "}", "a.json: .*digits"),
        ([said(("human", 3))], r"a.json: no conversation is left: 1 x one message \(a.json#0\)"),
        ([{"messages": [{"role": "user", "tokens": -1}, {"role": "assistant", "tokens": 1}]}],
         "a.json#0 message 0: expected a number of tokens, got -1"),
        ("conversation,message,from,tokens\n0,0,human,x", "a.json:2.tokens: expected a whole number, got"),
        ("conversation,message,from,tokens\n0,0,gpt," + "9" * 5000, "a.json:2.tokens: expected a whole"),
        ("conversation,message,from,tokens\n0,0,human", "a.json:2: expected 4 columns, got 3"),
    ],
)  # fmt: skip
def test_errors_name_file_and_place(tmp_path, document, message):
    with pytest.raises(WorkloadError, match=message):
        read(write(tmp_path, document))


def test_overflow(tmp_path):
    path = write(
        tmp_path,
        [said(("human", 30), ("gpt", 30), ("human", 30), ("gpt", 30)), said(("human", 5), ("gpt", 5))],
    )
    with pytest.raises(WorkloadError, match=r"a.json#0: a call of 120 tokens .* context of 100"):
        read(path, 100)
    assert read(path, 100, "skip").where["prompt over the context of 100 tokens"] == "a.json#0"
    assert lengths(read(path, 100, "truncate")) == [[(30, 30)], [(5, 5)]]
    with pytest.raises(NothingLeft, match="no conversation is left"):
        read(path, 5, "skip")


def test_what_is_not_claimed(tmp_path):
    for text in (
        '{"requests": [{"hash_ids": [1]}]}',
        '{"timestamp": 1, "input_length": 3, "messages": [{"role": "user", "content": ""}]}',
        '[{"task_id": 1, "traj": [{"role": "user", "content": "x"}]}]',
        '{"spans": [{"attributes": {"gen_ai.input.messages": "[{\\"role\\": \\"user\\"}]"}}]}',
        "a,b\n",
    ):
        assert READER.sniff(write(tmp_path, text)) is None


def test_every_shape_is_recognised_but_bare_texts(tmp_path):
    record = said(("human", 3), ("gpt", 4))
    for document in ([record], record, [record["conversations"]], record["conversations"],
                     "conversation,message,from,tokens\r\n0,0,human,3\r\n0,1,gpt,4",
                     [said(("human", 'about \"gen_ai.usage\" and \"turns\": 3'), ("gpt", 4))]):  # fmt: skip
        path = write(tmp_path, document)
        assert READER.sniff(path)
        assert load(str(path), rate=1.0).programs


def test_a_field_that_is_null_gives_way_to_its_other_name(tmp_path):
    messages = [
        {"from": None, "role": "user", "value": None, "content": words(10)},
        {"from": "gpt", "value": "y"},
    ]
    assert lengths(read(write(tmp_path, [messages]))) == [[(10, 1)]]


def test_conversations_are_drawn_at_a_rate(tmp_path):
    path = write(tmp_path, [said(("human", 3), ("gpt", 4))] * 2)
    result = load(str(path), rate=1.0, n=5)
    assert result.parameters["format"] == "sharegpt"
    dags = dry_runs(result.programs)
    assert len({segment for dag in dags for segment in ids(dag)}) == 10
    assert all(spec.kind == "sharegpt" for spec in result.programs)


@pytest.mark.skipif(not SAMPLE.is_file(), reason="the public lengths are not here")
def test_the_public_lengths():
    result = load(str(SAMPLE), rate=1.0)
    assert (result.read, len(result.programs)) == (500, 497)
    assert result.skipped == {"one message": 3}
    assert sharegpt.ESTIMATED not in result.repaired
    assert result.repaired[sharegpt.STARTS_WITH_REPLY] == 172

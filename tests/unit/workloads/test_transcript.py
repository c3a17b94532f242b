import pytest

from workloads.base import WorkloadError
from workloads.script import CallOp, ThinkOp, ToolOp
from workloads.tokens import ESTIMATE, counter
from workloads.transcript import (
    MODEL,
    SYSTEM,
    USER,
    Message,
    Prompts,
    Thread,
    nanoseconds,
    structure,
    text_of,
    too_deep,
)

S, U = Message(SYSTEM, "be brief", 30), Message(USER, "hello", 20)


def prompts(key=1):
    return Prompts(key, ESTIMATE)


def call(some, messages, reply="fine", output=10, total=None):
    op = CallOp("", 0, (), (), 0, output, 0)
    some.place(op, messages, reply, total)
    return op


def lengths(op):
    return [length for _, length in op.prompt()]


def test_a_prompt_that_repeats_another_shares_exactly_their_common_messages():
    some = prompts()
    one = call(some, [S, U])
    two = call(some, [S, U, Message(MODEL, "fine", 10), Message(USER, "and now?", 7)])
    other = call(some, [S, Message(USER, "something else", 9)])
    assert (two.base, two.keep, two.new[0][1]) == (one, 60, 7)
    assert two.prompt()[:3] == [*one.prompt(), (one.output_id, 10)]
    assert (other.keep, lengths(other)) == (30, [30, 9])
    assert other.prompt()[0] == one.prompt()[0]


def test_equal_texts_have_equal_ids_and_lengths_wherever_they_stand():
    some = prompts()
    one = call(some, [Message(USER, "the same words")])
    two = call(some, [Message(USER, "first"), Message(USER, "the same words")])
    assert one.prompt()[0] == two.prompt()[1]


def test_equal_programs_share_their_system_prompt_and_nothing_else():
    one, two = (call(prompts(key), [S, U]) for key in (1, 2))
    assert one.prompt()[0] == two.prompt()[0]
    assert one.prompt()[1][0] != two.prompt()[1][0]
    assert one.output_id != two.output_id
    late = [call(prompts(key), [U, S]) for key in (1, 2)]
    assert late[0].prompt()[1][0] != late[1].prompt()[1][0], "a system prompt that does not begin the prompt"


def test_another_reply_ends_the_sharing_before_it():
    some = prompts()
    one = call(some, [S, U], "fine")
    two = call(some, [S, U, Message(MODEL, "not what it said", 11), Message(USER, "go on", 2)])
    assert (two.base, two.keep) == (one, 50)


def test_a_reply_that_is_not_recorded_is_taken_to_be_the_one_repeated():
    some = prompts()
    one = call(some, [S, U], "")
    two = call(some, [S, U, Message(MODEL, "whatever", 11), Message(USER, "go on", 2)])
    assert (two.base, two.keep) == (one, 60)


def test_a_recorded_total_wins_and_what_the_messages_do_not_show_comes_behind_them():
    some = prompts()
    one = call(some, [S, U], total=80)
    assert (one.prompt_tokens, lengths(one)) == (80, [30, 20, 30])
    two = call(some, [S, U, Message(MODEL, "fine"), Message(USER, "go on", 2)], total=100)
    assert (two.keep, lengths(two)) == (90, [30, 20, 30, 10, 2, 8])
    # Less than it shares: the end of the reply goes first (a chain of thought is not sent back).
    three = call(some, [S, U, Message(MODEL, "fine"), Message(USER, "stop", 2)], total=85)
    assert (three.keep, lengths(three)) == (83, [30, 20, 30, 3, 2])


@pytest.mark.parametrize("total", [1, 2, 3, 10, 49, 50, 51, 1000])
def test_the_prompt_is_as_long_as_recorded_whatever_the_messages_say(total):
    some = prompts()
    for messages in ([S, U], [S, U, Message(MODEL, "fine", 10), U], [S], [U, S]):
        op = call(some, messages, total=total)
        assert op.prompt_tokens == total == sum(lengths(op))
        assert all(length > 0 for length in lengths(op))
    assert not some.estimated, "lengths that only say where messages end are not estimates of the prompt"


def test_estimates_are_counted_as_such():
    some = prompts()
    call(some, [Message(USER, "no length in the file")])
    assert some.estimated
    exact = Prompts(1, counter(None))
    call(exact, [S, U])
    assert not exact.estimated


def test_a_thread_goes_on_from_its_last_reply_without_repeating_it():
    fixes = []
    thread = Thread(prompts(), fixes.append)
    one = thread.call([S, U], Message(MODEL, "fine", 10))
    thread.tool("search", 1.5)
    thread.tool("nothing", 0.0)
    two = thread.call([Message(USER, "more", 5)], Message(MODEL, "", 0), goes_on=True, model="m")
    thread.think(-1.0)
    assert (two.index, two.parents, two.base, two.keep, two.prompt_tokens) == (1, (("", 0),), one, 60, 65)
    assert [type(op) for op in thread.script.ops] == [CallOp, ToolOp, CallOp]
    assert (two.output_tokens, fixes) == (1, ["reply of 0 tokens, 1 taken"])
    assert not any(isinstance(op, ThinkOp) for op in thread.script.ops)
    with pytest.raises(WorkloadError, match="without a prompt"):
        Thread(prompts(), fixes.append).call([], Message(MODEL, "x", 1))


def test_branches_from_one_reply_do_not_disturb_each_other():
    some = prompts()
    trunk = Thread(some, print)
    first = trunk.call([S, U], Message(MODEL, "", 10))
    a, b = Thread(some, print, "0", trunk.parents), Thread(some, print, "1", trunk.parents)
    a.place = b.place = trunk.place
    asked = [Message(USER, "the same question", 4)]
    ops = [branch.call(asked, Message(MODEL, "", 3), goes_on=True) for branch in (a, b, a, b)]
    assert [op.prompt_tokens for op in ops] == [64, 64, 71, 71]
    assert ops[2].prompt()[-2][0] == ops[0].output_id
    assert ops[3].prompt()[-2][0] == ops[1].output_id != ops[0].output_id
    assert all(op.prompt()[:2] == first.prompt() for op in ops)


@pytest.mark.parametrize(
    ("message", "text"),
    [
        ({"content": " hi \n"}, "hi"),
        ({"content": None}, ""),
        ({"content": [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {}}, "b"]}, "a\nb"),
        ({"parts": [{"type": "text", "content": "a"}]}, "a"),
        ({"parts": [{"type": "tool_call", "id": "1", "name": "f", "arguments": {"x": 1}}]}, 'f({"x":1})'),
        ({"content": None, "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": '{"x":1}'}}]},
         'f({"x":1})'),
        ({"content": "", "function_call": {"name": "f", "arguments": "{}"}}, "f({})"),
        ({"parts": [{"type": "tool_call_response", "id": "1", "response": {"ok": True}}]}, '{"ok":true}'),
        ({"content": 7}, ""),
        ({}, ""),
    ],
)  # fmt: skip
def test_texts_of_messages(message, text):
    assert text_of(message) == text


def test_json_strings_that_hold_python():
    assert structure('{"a": [1, null]}') == {"a": [1, None]}
    assert structure("{'a': [1, None, True], 'b': 'it\\'s'}") == {"a": [1, None, True], "b": "it's"}
    for other in ("plain", "[not a list", "{'a': f(1)}", "[" * 5000, 7, None, ""):
        assert structure(other) == other
    assert structure("[" * 400 + "]" * 400) == "[" * 400 + "]" * 400, "too deep to walk"
    assert not too_deep([[[{"a": []}]]])


@pytest.mark.parametrize(
    ("value", "ns"),
    [
        ("1970-01-01T00:00:01Z", 10**9),
        ("1970-01-01T01:00:01+01:00", 10**9),
        ("1970-01-01 00:00:01.000000001", 10**9 + 1),
        ("1544712660300000000", 1544712660300000000),
        (1544712660300000000, 1544712660300000000),
        ("2026-02-30T00:00:00Z", None),
        ("soon", None),
        ("9" * 30, None),
        (None, None),
        (float("nan"), None),
        ([1], None),
    ],
)
def test_times(value, ns):
    assert nanoseconds(value) == ns

"""Conversation files broken in every way are read or refused with a reason; none collide."""

import json
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from workloads.base import WorkloadError
from workloads.dryrun import dry_runs
from workloads.readers.sharegpt import READER, ROLES

odd = st.one_of(
    st.none(), st.booleans(), st.integers(-5, 300), st.text(max_size=6), st.just([]), st.just({}),
    st.just(1 << 70), st.just([{"text": "a"}, "b", None]),
)  # fmt: skip
message = st.fixed_dictionaries(
    {}, optional={
        "from": st.one_of(st.sampled_from(sorted(ROLES)), odd),
        "value": st.one_of(st.text(max_size=40), odd),
        "role": st.sampled_from(sorted(ROLES)),
        "content": odd,
        "tokens": st.integers(0, 50),
    },
)  # fmt: skip
listed = st.lists(st.one_of(message, message, odd), max_size=6)
record = st.one_of(
    listed,
    odd,
    st.builds(lambda name, items: {name: items}, st.sampled_from(["conversations", "messages"]), listed),
)


def runs_or_says_why(data, rule):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.json"
        path.write_bytes(data)
        try:
            result = READER.read(path, max_model_len=500, on_overflow=rule)
        except WorkloadError as error:
            said, result = str(error), None
    if result is None:
        assert "a.json" in said
        assert folder not in said
        return
    assert len(result.programs) + sum(result.skipped.values()) == result.read
    assert set(result.where) == {*result.skipped, *result.repaired}
    owners = {}
    for dag in dry_runs(result.programs):
        assert dag.calls
        assert dag.longest <= 500
        for call in dag.calls:
            assert call.prompt_tokens == sum(length for _, length in call.prompt) >= 1
            for segment, _ in (*call.prompt[1:], (call.output_id, call.output_tokens)):
                assert owners.setdefault(segment, dag.index) == dag.index


rules = st.sampled_from(["skip", "truncate", "refuse"])


@settings(max_examples=300, deadline=None)
@given(st.lists(record, max_size=4), rules, st.booleans())
def test_any_records(found, rule, lines):
    text = "\n".join(map(json.dumps, found)) if lines else json.dumps(found)
    runs_or_says_why(text.encode(), rule)


GOOD = json.dumps([{"conversations": [{"from": "human", "value": "a b"}, {"from": "gpt", "value": "c"}]}] * 2)


@settings(max_examples=150, deadline=None)
@given(st.integers(0, len(GOOD)), st.binary(max_size=4), rules)
def test_cut_and_garbled_files(at, junk, rule):
    runs_or_says_why(GOOD.encode()[:at] + junk, rule)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(["human", "gpt", "system", "tool"]), st.integers(0, 9)), min_size=2)
)
def test_no_token_is_lost_but_those_of_unanswered_messages(said):
    messages = [{"from": role, "tokens": tokens} for role, tokens in said]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.json"
        path.write_text(json.dumps([{"conversations": messages}]))
        try:
            result = READER.read(path, max_model_len=10**6, on_overflow="refuse")
        except WorkloadError:
            return
    (dag,) = dry_runs(result.programs)
    while said and said[-1][0] != "gpt":
        said.pop()
    invented = sum(call.output_tokens == 1 for call in dag.calls)
    total = sum(tokens for _, tokens in said)
    last = dag.calls[-1]
    assert total <= last.prompt_tokens + last.output_tokens <= total + invented

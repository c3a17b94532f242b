"""Recorded by the real gateway and read back: every length, gap and shared prefix is as it was sent."""

import asyncio
import tempfile
from itertools import combinations
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from systems.gateway.record.hashes import TEXT_BLOCK
from systems.gateway.watchers import attach
from tests.property.test_workloads_readers import shared_tokens
from tests.unit.systems.gateway.talk import PER_TOKEN, rendered, talk
from workloads.load import load
from workloads.script import CallOp, JoinOp, ThinkOp, ToolOp

BLOCK = TEXT_BLOCK // PER_TOKEN
CLOCK_S = 1e-5
"""Recorded times are rounded to a microsecond each."""


def recorded(seed, folder):
    truth, passages = asyncio.run(talk(folder, seed, attach))
    return truth, {one.output_tokens: one for one in passages}, load(str(folder), max_model_len=1 << 20)


def scripts(programs):
    return [spec.start.args[0] for spec in programs]


def truly_shared(truth, a, b):
    """Tokens that two prompts have in common, and whether the first difference lies inside a message."""
    total = 0
    for x, y in zip(a, b, strict=False):
        if x != y:
            text = common(rendered(x), rendered(y)) if x["role"] == y["role"] else 0
            return total + text // PER_TOKEN, True
        total += truth.tokens(x)
    return total, False


def common(a, b):
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def check_lengths(truth, calls):
    assert sorted(calls) == sorted(truth.calls)
    for output, op in calls.items():
        assert op.prompt_tokens == truth.calls[output].prompt_tokens
        assert sum(length for _, length in op.prompt()) == op.prompt_tokens
        assert op.prompt_tokens == op.keep + sum(length for _, length in op.new)


def check_sharing(truth, calls):
    """To the token where prompts part between two messages, to the block where they part inside of one."""
    for a, b in combinations(calls.values(), 2):
        x, y = truth.calls[a.output_tokens], truth.calls[b.output_tokens]
        right, inside = truly_shared(truth, x.messages, y.messages)
        found = shared_tokens(a.prompt(), b.prompt())
        assert found <= right, "they share no more than that"
        assert found == right if not inside else found > right - BLOCK - 1


def check_replies(truth, calls):
    """A prompt that goes on from another, and its reply, holds what was generated; no other prompt does."""
    for op in calls.values():
        lengths, messages = dict(op.prompt()), truth.calls[op.output_tokens].messages
        for output, other in calls.items():
            before = truth.calls[output]
            place = len(before.messages)
            goes_on = place < len(messages) and messages[:place] == before.messages
            kept = lengths.get(other.output_id, 0)
            if goes_on and messages[place] == before.reply:
                assert kept == output
            elif kept:
                assert goes_on, "the reply to another prompt"
                assert messages[place]["content"][:TEXT_BLOCK] == before.reply["content"][:TEXT_BLOCK]
                assert kept < output


def check_times(passages, programs):
    """If every call takes as long as it did, every call begins when it did."""
    for spec, script in zip(programs, scripts(programs), strict=True):
        starts = {}
        begin = min(passages[op.output_tokens].t_arrive for op in script.calls())
        play(script, begin, passages, starts)
        for output, start in starts.items():
            assert start == pytest.approx(passages[output].t_arrive, abs=CLOCK_S)
        first = min(one.t_arrive for one in passages.values())
        assert spec.arrival == pytest.approx(begin - first, abs=CLOCK_S)


def play(script, t, passages, starts):
    for op in script.ops:
        match op:
            case CallOp():
                one = passages[op.output_tokens]
                starts[op.output_tokens] = t
                t += one.t_end - one.t_arrive
            case ToolOp(_, seconds) | ThinkOp(seconds):
                t += seconds
            case JoinOp():
                t = max(play(inner, t, passages, starts) for inner in op.scripts)
            case _:
                raise AssertionError(op)
    return t


def check_programs(truth, programs):
    """A session is a program; without one, a conversation is."""
    for script in scripts(programs):
        who = {truth.calls[op.output_tokens].who for op in script.calls()}
        assert len(who) == 1
    named = [one.who for one in truth.calls.values() if one.who]
    mine = [script for script in scripts(programs) if truth.calls[next(script.calls()).output_tokens].who]
    assert len(mine) == len(set(named))


def check_no_text(truth, folder):
    """Not eight characters in a row of any prompt or reply."""
    written = b"".join(path.read_bytes() for path in sorted(folder.iterdir())).decode()
    seen = {written[i : i + 8] for i in range(len(written))}
    for one in truth.calls.values():
        for text in (*(message["content"] for message in one.messages), one.reply["content"]):
            assert not seen & {text[i : i + 8] for i in range(len(text) - 7)}


@given(seed=st.integers(0, 2**32))
@settings(max_examples=12, deadline=None, derandomize=True)
def test_a_recording_is_what_was_sent(seed):
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        truth, passages, found = recorded(seed, folder)
        calls = {op.output_tokens: op for script in scripts(found.programs) for op in script.calls()}
        check_lengths(truth, calls)
        check_sharing(truth, calls)
        check_replies(truth, calls)
        check_times(passages, found.programs)
        check_programs(truth, found.programs)
        check_no_text(truth, folder)
        assert found.skipped == {}

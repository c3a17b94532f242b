"""From recorded calls to branches: played with their own times, calls begin when they did."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vocabulary import on_grid
from workloads.base import WorkloadError
from workloads.lanes import DEEPEST, script_of
from workloads.recorded import Piece, Seen
from workloads.script import CallOp, JoinOp, ThinkOp, ToolOp


def seen(number, thread, start, end, **changes):
    one = Seen(f"f:{number}", 0, True, thread, on_grid(start), on_grid(end), 10, 1 + number, None, "m", 0)
    for name, value in changes.items():
        setattr(one, name, value)
    return one


def content(call):
    return [(call.output_tokens, call.prompt_tokens)], 1000 + call.output_tokens


def play(script, t, calls, starts):
    """Its end, if every call takes what it took; ``starts`` gets when each begins."""
    for op in script.ops:
        match op:
            case CallOp():
                one = calls[op.output_tokens]
                starts[op.output_tokens] = t
                t += one.end - one.start
            case ToolOp(_, seconds) | ThinkOp(seconds):
                t += seconds
            case JoinOp():
                t = max(play(inner, t, calls, starts) for inner in op.scripts)
            case _:
                raise AssertionError(op)
    return t


def shape(script):
    """Calls by number, joins as sets of branches."""
    found = []
    for op in script.ops:
        if isinstance(op, CallOp):
            found.append(op.output_tokens - 1)
        elif isinstance(op, JoinOp):
            found.append([shape(inner) for inner in op.scripts])
    return found


def some_threads(draw):
    """Calls of 1 to 4 threads; those of a thread may overlap, the first call ends before all others begin."""
    calls = [seen(0, 0, 0.0, 1.0)]
    for thread in range(draw.randint(1, 4)):
        for _ in range(draw.randint(1, 2)):
            t = 1.0 + draw.uniform(0, 6)
            for _ in range(draw.randint(0, 5)):
                end = t + draw.uniform(0.1, 2.0)
                calls.append(seen(len(calls), thread, t, end))
                t = end + draw.choice([0.0, draw.uniform(0, 2)])
    return sorted(calls, key=lambda call: (call.start, call.end))


@given(seed=st.integers(0, 2**32))
@settings(max_examples=300, deadline=None)
def test_calls_begin_when_they_did_and_what_overlapped_overlaps(seed):
    calls = some_threads(Random(seed))
    script = script_of(calls, content)
    known, starts = {one.output_tokens: one for one in calls}, {}
    end = play(script, 0.0, known, starts)
    assert starts == pytest.approx({number: one.start for number, one in known.items()}, abs=1e-6)
    assert end == pytest.approx(max(one.end for one in calls), abs=1e-6)
    ids = [op.id for op in script.calls()]
    assert len(set(ids)) == len(ids) == len(calls)


def test_calls_side_by_side_under_one_thread_are_waited_for_by_the_next_one():
    calls = [seen(0, 0, 0, 1), seen(1, 0, 2, 4), seen(2, 0, 2, 5), seen(3, 0, 2, 3), seen(4, 0, 6, 7)]
    script = script_of(calls, content)
    assert shape(script) == [0, [[1], [2], [3]], 4]
    last = max(script.calls(), key=lambda op: op.output_tokens)
    assert len(last.parents) == 3
    assert script.ops[-2] == ThinkOp(1.0)


def test_a_thread_is_a_branch_and_goes_on_beside_the_first_one():
    calls = [seen(0, 0, 0, 1), seen(1, 1, 2, 3), seen(2, 0, 2, 3), seen(3, 1, 5, 8), seen(4, 0, 6, 7)]
    assert shape(script_of(calls, content)) == [0, [[2, 4], [1, 3]]]


def test_a_call_stays_in_the_lane_whose_reply_it_quotes():
    calls = [seen(0, 0, 0, 1), seen(1, 0, 2, 4), seen(2, 0, 2, 4)]
    calls += [seen(3, 0, 5, 6, follows=calls[2]), seen(4, 0, 5, 6, follows=calls[1])]
    assert shape(script_of(calls, content)) == [0, [[1, 4], [2, 3]]]


def test_the_time_after_a_reply_is_a_tools_where_there_is_one():
    tool = Piece(None, "t", "byte", 1, 1, (1,))
    calls = [seen(0, 0, 0, 1, tools=1), seen(1, 0, 2, 3), seen(2, 0, 4, 5), seen(3, 0, 5, 6, prompt=tool)]
    kinds = [type(op).__name__ for op in script_of(calls, content).ops]
    assert kinds == ["CallOp", "ToolOp", "CallOp", "ThinkOp", "CallOp", "CallOp"]
    calls[-1] = seen(3, 0, 5.5, 6, prompt=tool)
    assert isinstance(script_of(calls, content).ops[-2], ToolOp)


def test_what_a_call_took_outside_of_its_engine_is_before_it():
    calls = [seen(0, 0, 0, 1, overhead=0.25), seen(1, 0, 3, 4, overhead=0.25)]
    ops = script_of(calls, content).ops
    assert (ops[0], ops[2]) == (ThinkOp(0.25), ThinkOp(2.25))


def test_a_prompt_that_goes_on_keeps_what_it_shares():
    def growing(call):
        return [(1, 10), (7, call.prompt_tokens - 10)][: 1 if call.prompt_tokens == 10 else 2], 7

    calls = [seen(0, 0, 0, 1), seen(1, 0, 1, 2, prompt_tokens=11)]
    _, second = script_of(calls, growing).calls()
    assert (second.keep, second.new, second.prompt()) == (11, (), [(1, 10), (7, 1)])


def test_branches_inside_branches_have_an_end():
    n = DEEPEST + 2
    line = [seen(k, 0, 2 * k, 2 * k + 1) for k in range(n)]
    beside = [seen(n + k, k + 1, 2 * k + 1.5, 2 * n + 9) for k in range(n - 1)]
    with pytest.raises(WorkloadError, match="f:0: over 100 branches that begin one inside the other"):
        script_of(sorted([*line, *beside], key=lambda one: one.start), content)

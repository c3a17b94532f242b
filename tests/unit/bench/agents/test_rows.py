"""What relay and host saw, as programs and critical paths."""

import math
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.agents.rows import OVERLAP_S, Span, covered, dropped_s, live_run, path
from bench.errors import InvalidRun
from bench.fidelity.server_calls import request_name
from bench.live.rows import rows_of
from tests.unit.bench.agents.runs import began, call, ended, log_of, row, run_of, tool


def by_hand(spans, begin, end):
    """The dumbest way: what ended last before, one after the other, each once."""
    left = [s for s in spans if s.begin >= begin and s.end <= end]
    found, at = [], end
    while True:
        fitting = [s for s in left if s.end <= at]
        if not fitting:
            return found
        last = max(fitting, key=lambda s: (s.end, s.begin))
        left.remove(last)
        found.append(last)
        at = last.begin


TIMES = st.integers(0, 20).map(float)
SPANS = st.lists(st.tuples(TIMES, TIMES).map(lambda t: Span(min(t), max(t))), max_size=12)


@settings(deadline=None)
@given(SPANS)
def test_the_path_is_that_of_a_dumb_walk_and_never_two_things_at_a_time(spans):
    found = path(spans, 0.0, 20.0)
    assert sum(s.end - s.begin for s in found) == sum(s.end - s.begin for s in by_hand(spans, 0.0, 20.0))
    assert [(s.begin, s.end) for s in found] == [(s.begin, s.end) for s in by_hand(spans, 0.0, 20.0)]
    assert all(later.begin >= earlier.end for later, earlier in pairwise(found))


def test_links_that_overlap_by_a_clocks_reading_touch_and_no_more():
    call, tool = Span(1.0, 3.000001, "c"), Span(3.0, 5.0)
    assert path([call, tool], 0.0, 6.0) == [tool, Span(1.0, 3.0, "c")]
    assert path([Span(1.0, 3.0 + OVERLAP_S, "c"), tool], 0.0, 6.0) == [tool, Span(1.0, 3.0, "c")]
    assert path([Span(1.0, 3.002, "c"), tool], 0.0, 6.0) == [tool]
    assert path([Span(3.0002, 3.0004), tool], 0.0, 6.0) == [tool]  # nothing of it is before the link


def test_what_paths_leave_out_is_counted():
    def dropped(*tools):
        calls = [call(0, "main", 0, 1.0, 3.0)]
        run = run_of(calls, [began(0, 0.0), *(tool(0, *one) for one in tools), ended(0, 10.0)])
        return dropped_s(run, [])

    assert dropped((3.0, 5.0)) == 0.0
    assert dropped((2.999999, 5.0)) == pytest.approx(0.0, abs=1e-5)
    assert dropped((2.5, 5.0)) == pytest.approx(1.5)  # of the call; half a second of it is the tool's
    assert dropped((3.0, 5.0), (3.0, 8.0)) == 0.0  # the branch that nobody waited for
    assert covered([Span(0, 2), Span(1, 3), Span(5, 6), Span(5, 5.5)]) == 4.0


def test_a_program_of_one_thread_is_calls_tools_and_what_lies_between():
    calls = [call(0, "main", 0, 1.0, 3.0), call(0, "main", 1, 5.0, 8.0)]
    run = run_of(calls, [began(0, 0.5), tool(0, 3.25, 4.75), ended(0, 9.0)])
    logs = [log_of({"0.main.0": row(0.25, 0.5, 1.0, 1.125), "0.main.1": row(0.0, 1.0, 1.5, 5.25)})]
    live = live_run(run, logs)
    (program,) = live.programs
    assert (program.t_sched, program.t_end, program.tool_s) == (0.5, 9.0, 1.5)
    (line,) = rows_of(live, logs).programs
    assert line.t_end - line.t_arrive == 8.5
    assert (line.cp_wait_s, line.cp_prefill_s, line.cp_decode_s, line.cp_tool_s) == (0.25, 1.5, 2.5, 1.5)
    assert line.cp_overhead_s == 8.5 - 0.25 - 1.5 - 2.5 - 1.5
    assert (line.calls, line.output_tokens, line.threads) == (2, 8, 1)
    assert live.calls[1].parents == (("main", 0),)


def test_of_parallel_threads_the_one_that_everybody_waited_for_is_the_path():
    calls = [
        call(0, "map-0", 0, 1.0, 4.0),
        call(0, "map-1", 0, 1.0, 6.0),
        call(0, "map-2", 0, 1.0, 2.0),
        call(0, "reduce", 0, 6.5, 8.0),
    ]
    run = run_of(calls, [began(0, 1.0), ended(0, 8.0)])
    keys = {f"0.{c.thread}.0": row(0.0, 0.5, c.t_last - c.t_arrive - 1.0, c.t_arrive - 100.0) for c in calls}
    live = live_run(run, [log_of(keys)])
    (program,) = live.programs
    assert [leg.name.partition(".")[2] for leg in program.path] == ["0.reduce.0", "0.map-1.0"]
    assert program.threads == 4
    (line,) = rows_of(live, [log_of(keys)]).programs
    assert line.cp_prefill_s == 1.0
    assert line.cp_decode_s == 4.0 + 0.5
    assert line.cp_overhead_s == 7.0 - 1.0 - 4.5
    assert line.exec_s == 2.0 + (2.0 + 4.0 + 0.0 + 0.5)
    assert {c.thread: c.parents for c in live.calls}["reduce"] == (("map-1", 0),)


def test_parallel_tools_count_the_longest_on_the_path_and_all_in_the_sum():
    run = run_of(
        [call(0, "main", 0, 0.0, 1.0)], [began(0, 0.0), tool(0, 1.0, 2.0), tool(0, 1.0, 5.0), ended(0, 5.0)]
    )
    logs = [log_of({"0.main.0": row(0.0, 0.5, 0.25, 0.0)})]
    (line,) = rows_of(live_run(run, logs), logs).programs
    assert (line.tool_s, line.cp_tool_s, line.cp_overhead_s) == (5.0, 4.0, 0.25)


def test_calls_that_were_given_up_or_refused_are_overhead_and_no_row():
    calls = [
        call(0, "main", 0, 0.0, 2.0, outcome="cut", prompt=-1, out=-1),
        call(0, "main", 1, 2.0, 3.0, outcome="failed", prompt=-1, out=-1),
        call(0, "main", 2, 3.0, 4.0),
    ]
    refused = call(0, "main", 3, 4.0, 4.5, outcome="refused", send=math.nan)
    run = run_of([*calls, refused], [began(0, 0.0), ended(0, 5.0, "failed", False, "refused")])
    logs = [
        log_of({"0.main.0": row(0.5, 1.0, 0.25, 0.0, aborted=True), "0.main.2": row(0.0, 0.5, 0.25, 3.0)})
    ]
    live = live_run(run, logs)
    assert [c.outcome for c in live.calls] == ["cut", "cut", "finished"]
    assert live.calls[0].prompt_tokens == 64  # by the engine, which took it in
    rows = rows_of(live, logs)
    (line,) = rows.programs
    assert line.outcome == "failed"
    assert line.calls == len(rows.calls) == 2
    assert line.cp_prefill_s == 0.5
    assert line.cp_overhead_s == 5.0 - 0.75


def test_a_call_that_was_computed_and_asked_for_again_makes_a_run_invalid():
    computed = [call(0, "main", 0, 0.0, 1.0, outcome="cut"), call(0, "main", 0, 1.0, 2.0)]
    with pytest.raises(InvalidRun, match=r"0\.main\.0 was computed, and asked for again"):
        _ = run_of(computed, []).sent
    turned_away = [call(0, "main", 0, 0.0, 1.0, outcome="failed"), call(0, "main", 0, 1.0, 2.0)]
    assert run_of(turned_away, []).sent == turned_away[1:]


def test_a_program_that_does_not_end_makes_a_run_invalid():
    with pytest.raises(InvalidRun, match=r"program 3 \(task-3\) began and did not end"):
        live_run(run_of([], [began(3, 0.0)]), [])


def test_without_logs_calls_are_as_the_relay_saw_them():
    run = run_of([call(0, "main", 0, 1.0, 3.0, out=7)], [began(0, 0.0), ended(0, 4.0)])
    rows = rows_of(live_run(run, []), [])
    assert [(c.output_tokens, c.t_end - c.t_arrive) for c in rows.calls] == [(7, 2.0)]
    (line,) = rows.programs
    assert line.cp_decode_s == 2.0


@pytest.mark.parametrize(
    ("request_id", "name"),
    [
        ("chatcmpl-run1x0.3.map-0.2-gw7ca3.64015a.64-bda94c89", ("run1x0", "3", "map-0", "2")),
        ("cmpl-run1x0.3.0_1.2-0-0123abcd", ("run1x0", "3", "0_1", "2")),
        ("resp_run1x0.3.main.0-0123abcd", ("run1x0", "3", "main", "0")),
        ("chatcmpl-0123abcd", ("", "", "", "")),
    ],
)
def test_calls_are_known_by_their_names_in_the_engines_logs_in_every_api(request_id, name):
    assert request_name(request_id) == name

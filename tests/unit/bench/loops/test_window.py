import math

import pandas as pd
import pytest

from bench.loops.quantities import QUANTITIES, WHOLE_RUN
from bench.loops.window import Log, Window, beside, numbers, window_of
from tests.unit.bench.loops.planted import even_log


def test_even_steps_are_counted_as_they_are():
    log = even_log(threads=4, per_minute=120.0)  # a cycle of 2 s, 1 s of it the call
    found = numbers(log, Window(60.0, 240.0, 180.0), capacity=1e6, place=4)
    assert found["steps_per_min"] == pytest.approx(120.0, rel=0.01)
    assert found["latency"] == pytest.approx(1.0)
    assert found["cycle"] == pytest.approx(2.0)
    assert found["in_loop"] == pytest.approx(4.0)
    assert found["little"] == pytest.approx(1.0, rel=0.01)
    assert found["hit"] == pytest.approx(0.9)
    assert found["recompute"] == pytest.approx(10.0)
    assert set(found) <= set(QUANTITIES)


def test_the_working_set_is_the_contexts_of_those_that_are_there():
    log = even_log(threads=4, per_minute=120.0)
    found = numbers(log, Window(0.0, 2.0, 2.0), capacity=400.0)
    # from 0, .5, 1 and 1.5 s on, each program has a context of 110 tokens until 2 s
    assert found["pressure"] == pytest.approx(110 * (2.0 + 1.5 + 1.0 + 0.5) / 2.0 / 400.0)
    once = numbers(log, Window(0.0, 2.0, 2.0), capacity=400.0, shared=50)["pressure"]
    assert once == pytest.approx((60 * (2.0 + 1.5 + 1.0 + 0.5) / 2.0 + 50) / 400.0)


def test_the_window_ends_where_the_backlog_is_empty():
    programs = pd.DataFrame({"program": [0, 1], "t_arrive": [0.0, 500.0], "t_end": [600.0, 900.0]})
    window = window_of(programs, 100.0, 1000.0)
    assert (window.start, window.end, window.covered) == (100.0, 500.0, 0.4)
    assert window_of(programs, 800.0, 1000.0).seconds == 0.0


@pytest.mark.parametrize("window", [Window(5000.0, 5000.0, 10.0), Window(60.0, 100.0, 100.0)])
def test_a_short_window_has_only_numbers_of_the_whole_run(window):
    found = numbers(even_log(2, 60.0), window, 1e6)
    assert set(found) <= WHOLE_RUN
    assert found["makespan"] > 0


def test_littles_law_is_held_against_the_programs_asked_for():
    log = even_log(threads=4, per_minute=120.0)
    window = Window(60.0, 240.0, 180.0)
    assert numbers(log, window, 1e6, place=8)["little"] == pytest.approx(0.5, rel=0.01)
    assert numbers(log, window, 1e6)["little"] == pytest.approx(1.0, rel=0.01)  # those in the system
    calls = log.calls.assign(thread=(log.calls["index"] % 2).astype(str))
    assert math.isnan(numbers(log._replace(calls=calls), window, 1e6, place=4)["little"])


def test_holds_count_in_the_window_and_few_give_no_p99():
    found = numbers(even_log(4, 300.0, hold_s=700.0), Window(30.0, 240.0, 210.0), 1e6)
    assert found["hold_max"] == found["hold_p99"] == 700.0
    assert found["wait_p99"] == 701.0  # the planted second in the engine's queue
    assert found["held_over_600"] == 1.0
    few = numbers(even_log(4, 12.0, hold_s=700.0), Window(30.0, 240.0, 210.0), 1e6)
    assert math.isnan(few["hold_p99"])


def test_aborted_calls_are_no_steps():
    log = even_log(2, 60.0)
    gone = Log(log.programs, log.calls.assign(aborted=log.calls["index"] % 2 == 0), log.engine)
    whole, half = (numbers(one, Window(40.0, 240.0, 200.0), 1e6)["steps_per_min"] for one in (log, gone))
    assert half == pytest.approx(whole / 2, rel=0.02)


def test_two_engines_are_compared_by_their_samples():
    samples = pd.DataFrame(
        [
            {"time": t, "engine": e, "kv_used": 50 if e and t < 300 else 10}
            for t in range(0, 600, 10)
            for e in (0, 1)
        ]
    )
    log = even_log(2, 60.0)._replace(engine=samples)
    found = numbers(log, Window(0.0, 600.0, 600.0), capacity=2 * 100 * 16, replicas=2)
    assert found["imbalance"] == pytest.approx(0.4)
    assert found["imbalance_minutes"] == pytest.approx(0.5, abs=0.02)


def test_first_responses_by_size():
    log = even_log(2, 60.0)
    calls = log.calls.assign(prompt_tokens=log.calls.prompt_tokens + 1000 * log.calls.program)
    late = (calls.program == 1) & (calls["index"] == 0)
    calls.loc[late, "t_end"] += 3.0
    found = numbers(log._replace(calls=calls), Window(60.0, 240.0, 180.0), 1e6)
    assert found["first_large"] - found["first_small"] == pytest.approx(3.0)


def test_sandboxes_and_regret_come_from_the_summary():
    summary = {
        "environment": {"init_wait_s": 40.0, "prepare_s": 120.0, "prepared": 4.0, "peak_disk_gb": 7.0},
        "outcomes": {"finished": 8},
        "metrics": {"keep.regret": {"value": 2.5}},
    }
    assert beside(summary) == {"env_wait": 5.0, "env_prepare": 30.0, "peak_disk_gb": 7.0, "regret": 2.5}
    assert beside({"metrics": {}, "outcomes": {}}) == {}

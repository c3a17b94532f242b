"""What a scrape of the gateway tells, and what telling it costs."""

import asyncio
import time

import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from systems.gateway.metrics import Histogram, Metrics
from systems.gateway.observe import Observer
from tests.unit.systems.gateway.passages import finished, passage, through
from vocabulary import EngineView

NAN = float("nan")


def views():
    return [EngineView(0, True, 3, 512, 1024, 2), EngineView(1, False, 0, 0, 0)]


def samples(metrics):
    """(name, labels) -> value, as Prometheus would read it."""
    text = generate_latest(metrics.registry).decode()
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def value(found, name, **labels):
    return found["gateway_" + name, tuple(sorted(labels.items()))]


def test_calls_tokens_and_times_of_one_call():
    metrics: Observer = Metrics(views)
    metrics.started(0, "p0", 0.5)
    through(metrics, passage())
    metrics.ended(0, "p0", "ended", 99.0)
    found = samples(metrics)
    assert value(found, "calls_total", endpoint="/v1/completions", outcome="finished") == 1
    assert value(found, "charged_calls_total", source="log") == 1
    assert [value(found, f"{kind}_tokens_total", engine="0") for kind in ("prompt", "output", "cached")] == [
        100, 7, 64,
    ]  # fmt: skip
    assert value(found, "chunks_total") == 8
    assert value(found, "received_bytes_total") == 400
    sums = {"added": 0.001, "first_byte": 0.2, "call": 2.0, "program": 2.5, "program_exec": 1.5,
            "program_wait": 0.25}  # fmt: skip
    assert {name: round(value(found, f"{name}_seconds_sum"), 9) for name in sums} == sums
    assert all(value(found, f"{name}_seconds_count") == 1 for name in sums)
    assert value(found, "hold_seconds_count") == 0
    assert value(found, "programs_over_total", why="ended") == 1


def test_what_the_gate_held_is_not_what_the_gateway_added():
    metrics = Metrics(views)
    call = passage()
    metrics.arrived(call)
    metrics.held(call)
    assert value(samples(metrics), "calls_held") == 1
    metrics.left(finished(call, t_admit=31.0, t_send=31.002, t_end=40.0))
    found = samples(metrics)
    assert value(found, "hold_seconds_sum") == 30.0
    assert value(found, "added_seconds_sum") == pytest.approx(0.002)
    assert value(found, "calls_held") == 0


def test_a_call_that_gave_up_while_it_was_held_was_held_too():
    metrics = Metrics(views)
    call = passage()
    metrics.arrived(call)
    metrics.held(call)
    call.outcome, call.t_end = "timeout", 601.0
    metrics.left(call)
    found = samples(metrics)
    assert (value(found, "hold_seconds_sum"), value(found, "hold_seconds_count")) == (600.0, 1)
    assert value(found, "added_seconds_count") == 0


def test_a_call_that_was_never_sent_has_no_times():
    metrics = Metrics(views)
    call = passage()
    metrics.arrived(call)
    call.outcome, call.t_end = "refused", 1.5
    metrics.left(call)
    found = samples(metrics)
    assert value(found, "calls_total", endpoint="/v1/completions", outcome="refused") == 1
    assert value(found, "added_seconds_count") == value(found, "call_seconds_count") == 0


def test_replies_that_do_not_stream_have_no_first_byte():
    metrics = Metrics(views)
    through(metrics, passage(stream=False))
    found = samples(metrics)
    assert value(found, "first_byte_seconds_count") == 0
    assert value(found, "call_seconds_count") == 1


def test_states_and_calls_in_flight():
    """Program 0 has one call at engine 1 and one waiting, program 1 one waiting, program 2 none."""
    metrics = Metrics(views)
    for program in range(3):
        metrics.started(program, f"p{program}", 0.0)
    flying = passage(0, 0, engine=1, t_send=1.5)
    for call in (flying, passage(1, 0), passage(2, 1)):
        metrics.arrived(call)
    metrics.sent(flying)
    found = samples(metrics)
    assert {s: value(found, "programs", state=s) for s in ("reasoning", "held", "idle")} == {
        "reasoning": 1, "held": 1, "idle": 1,
    }  # fmt: skip
    assert value(found, "calls_in_flight", engine="0") == 0
    assert value(found, "calls_in_flight", engine="1") == 1
    assert value(found, "calls_open") == 3
    flying.engine = 0  # the first one was lost before a byte came
    metrics.sent(flying)
    assert value(samples(metrics), "calls_in_flight", engine="0") == 1
    metrics.left(finished(flying))
    found = samples(metrics)
    assert value(found, "programs", state="held") == 2
    assert value(found, "calls_in_flight", engine="0") == 0


def test_engines_as_their_views_say():
    metrics = Metrics(views, dropped=lambda: 7)
    metrics.engine(1, "down", "connection refused", 1.0)
    found = samples(metrics)
    assert (value(found, "engine_up", engine="0"), value(found, "engine_up", engine="1")) == (1, 0)
    assert value(found, "engine_kv_usage", engine="0") == 0.5
    assert ("gateway_engine_kv_usage", (("engine", "1"),)) not in found  # its size is unknown
    assert value(found, "engine_running", engine="0") == 2
    assert value(found, "engine_events_total", engine="1", what="down") == 1
    assert value(found, "log_dropped_lines_total") == 7


def test_labels_stay_few_whatever_clients_send():
    metrics = Metrics(views)
    for number in range(50):
        metrics.started(number, f"secret-{number}", 0.0)
        through(metrics, passage(number, number, name=f"secret-{number}"))
        metrics.ended(number, f"secret-{number}", "lease", 9.0)
    text = generate_latest(metrics.registry).decode()
    assert "secret" not in text
    assert 'endpoint="/v1/completions",outcome="finished"} 50.0' in text


def test_a_program_without_a_finished_call_has_no_latency():
    metrics = Metrics(views)
    metrics.started(0, "p", 0.0)
    metrics.ended(0, "p", "lease", 3600.0)
    assert value(samples(metrics), "program_seconds_count") == 0


def test_another_attempt_is_counted():
    metrics = Metrics(views)
    through(metrics, passage(attempt=2))
    assert value(samples(metrics), "retries_total") == 1


def test_a_bound_counts_itself_and_nan_is_nothing():
    histogram = Histogram((1.0, 2.0))
    for number in (1.0, 1.5, 2.0, 3.0, NAN):
        histogram.add(number)
    assert histogram.buckets() == [("1.0", 1.0), ("2.0", 3.0), ("+Inf", 4.0)]
    assert histogram.sum == 7.5


def test_lag_of_the_loop_is_seen_and_nothing_stays_in_it():
    metrics = Metrics(views)

    async def late():
        metrics.watch()
        metrics.watch()
        await asyncio.sleep(0)
        time.sleep(0.25)  # somebody blocks the loop
        await asyncio.sleep(0.01)
        metrics.close()
        metrics.close()
        metrics.watch()
        return value(samples(metrics), "tasks")

    assert asyncio.run(late()) == 1
    found = samples(metrics)
    assert value(found, "lag_seconds_count") >= 1
    assert value(found, "lag_seconds_sum") >= 0.1


def test_the_process_tells_of_itself():
    found = samples(Metrics(views))
    assert found["process_open_fds", ()] > 0


def test_an_event_costs_microseconds():
    """The bar is 5 us in benchmarks/README.md; here only that it is not ten times that, on a busy machine."""
    metrics = Metrics(views)
    metrics.started(0, "p0", 0.0)
    calls = [finished(passage(number)) for number in range(2000)]
    begin = time.process_time()
    for call in calls:
        metrics.arrived(call)
        metrics.sent(call)
        metrics.first(call)
        metrics.left(call)
    assert (time.process_time() - begin) / (4 * len(calls)) < 50e-6

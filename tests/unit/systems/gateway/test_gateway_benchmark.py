"""What the gateway's benchmark judges, and its fake engine's call log."""

import asyncio
import copy

import pytest

from benchmarks.gateway import DOORS, MANY, NAIVE, TABLE, misses
from benchmarks.gateway_parts.processes import Beside, FakeEngine
from benchmarks.gateway_parts.streams import once, request_of
from systems.gateway.options import Target
from tests.unit.systems.gateway.engines import on_loop, world

RUN = {"call_us": 300.0, "chunk_us": 20.0, "added_p50_ms": 0.5, "off_line": -0.1}
GOOD = {
    "figures": {door: [dict(RUN) for _ in range(3)] for door in DOORS},
    "segments": [{"errors": 0}],
    "table": {"rows": TABLE, "errors": 0, "segments": [{"errors": 0}]},
    "many": {"peak": MANY, "errors": 0},
    "charged": dict(zip(DOORS, ({"usage": 9}, {"usage": 9}, {"log": 9}), strict=True)),
}


def test_a_good_run_misses_nothing():
    assert misses(GOOD) == []


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize(
    ("name", "value"),
    [("call_us", 401.0), ("chunk_us", 36.0), ("added_p50_ms", 1.1), ("off_line", -0.2), ("off_line", 0.2),
     ("call_us", float("nan"))],
)  # fmt: skip
def test_a_bar_that_is_missed_at_any_door_is_said(door, name, value):
    found = copy.deepcopy(GOOD)
    for run in found["figures"][door]:
        run[name] = value
    (said,) = misses(found)
    assert said.startswith(f"{door}: {name}")


@pytest.mark.parametrize(
    "change",
    [{"segments": [{"errors": 1}]}, {"table": GOOD["table"] | {"errors": 1}},
     {"table": GOOD["table"] | {"segments": [{"errors": 2}]}}, {"table": GOOD["table"] | {"rows": 9_999}},
     {"many": {"peak": MANY, "errors": 1}}, {"many": {"peak": 1_999, "errors": 0}},
     {"charged": {door: {"usage": 9} for door in DOORS}}],
)  # fmt: skip
def test_errors_and_runs_that_were_none_are_said(change):
    assert len(misses(GOOD | change)) == 1


def test_a_client_asks_for_its_usage_or_does_not():
    assert b"include_usage" in request_of("p", 1, 100)
    assert b"stream_options" not in request_of("p", 1, 100, asks_usage=False)


def test_calls_of_the_fake_engine_are_charged_by_its_log(tmp_path):
    @on_loop
    async def test(fake):
        target = Target(fake.url, calls=str(fake.calls))
        async with world(targets=lambda _: (target,)) as w:
            for number, stream in enumerate((True, False)):
                status, _, body = await w.ask("/v1/chat/completions", stream=stream, max_tokens=3)
                assert (status, b"usage" in body) == (200, not stream)
                assert w.watch.passages[number].source == "log"
                assert (w.last.served, w.last.output_tokens) == (3.0, 3)

    with FakeEngine(first_s=0.01, gap_s=0.0, calls=tmp_path / "calls.jsonl") as fake:
        test(fake)


def test_the_yardstick_passes_replies_on_whole(tmp_path):
    requests = [request_of(f"p{i}", 3, 2000) for i in range(8)]
    with FakeEngine(first_s=0.01, gap_s=0.0) as fake, Beside(NAIVE, fake.url, tmp_path / "log") as naive:
        tally = asyncio.run(once(naive.port, requests, 4, 3))
    assert (tally.errors, len(tally.total_s)) == ([], 8)

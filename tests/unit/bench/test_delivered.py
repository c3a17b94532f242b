"""The load that was sent against the load that was asked for."""

import asyncio
import random
import time
from dataclasses import asdict

import numpy as np
import pytest
from scipy import special, stats

from bench.drivers.audit import Audit
from bench.drivers.calls import Response
from bench.drivers.delivered import Delivered, ks_distance, ks_p
from bench.drivers.live import drive_live
from bench.drivers.loop import run, sleep_until
from bench.drivers.token_ids import TokenIds
from workloads.base import ProgramSpec


def poisson(n, rate, seed=1):
    draw, at, times = random.Random(seed), 0.0, []
    for _ in range(n):
        at += draw.expovariate(rate)
        times.append(at)
    return times


def test_distance_and_p_are_scipys():
    first, second = np.array(poisson(80, 1.0, 1)), np.array(poisson(60, 1.1, 2))
    found = stats.ks_2samp(first, second, method="asymp")
    assert ks_distance(first, second) == pytest.approx(found.statistic)
    assert ks_p(found.statistic, 80, 60) == pytest.approx(found.pvalue, abs=0.03)
    for x in (0.1, 0.3, 0.5, 0.8, 1.2, 2.0):
        assert ks_p(x, 2, 2) == pytest.approx(special.kolmogorov(x), abs=1e-9)


def test_what_was_asked_for_is_delivered():
    times = poisson(300, 50.0)
    lag = random.Random(2)
    found = Delivered.of(times, [at + lag.uniform(0.0, 0.001) for at in times])
    assert found.verdict == "ok"
    assert found.asked_per_s == pytest.approx(299 / (times[-1] - times[0]))
    assert found.sent_per_s == pytest.approx(found.asked_per_s, rel=0.01)
    assert found.p > 0.5
    assert "50 programs/s sent of 50 in the arrivals as drawn" in str(found)


def test_a_slower_rate_is_invalid_a_constant_lag_is_none():
    times = poisson(300, 50.0)
    assert Delivered.of(times, [at + 5.0 for at in times]).verdict == "ok", "lag is the audit's to tell"
    slow = Delivered.of(times, [1.021 * at for at in times])
    assert not slow.rate_holds
    assert slow.verdict == "invalid"
    assert Delivered.of(times, [1.019 * at for at in times]).verdict == "ok"


def test_bursts_at_the_right_rate_are_invalid():
    """A driver that wakes once in 200 ms sends all that is due at once."""
    times = poisson(900, 50.0)
    bursts = [0.2 * np.ceil(at / 0.2) for at in times]
    found = Delivered.of(times, bursts)
    assert found.rate_holds
    assert found.p < 1e-6
    assert found.verdict == "invalid"


def test_a_trace_with_many_arrivals_at_one_time():
    """Ten in each third second: sent 3 ms apart they are as good as at once, 0.3 s apart they are not."""
    times = [3.0 * (i // 10) for i in range(200)]
    assert Delivered.of(times, [at + 0.003 * (i % 10) for i, at in enumerate(times)]).verdict == "ok"
    assert Delivered.of(times, [at + 0.3 * (i % 10) for i, at in enumerate(times)]).verdict == "invalid"


def test_one_program_has_no_rate_nor_have_many_at_once():
    assert Delivered.of([1.0], [1.0]) is None
    assert Delivered.of([0.0] * 64, [0.1 * i for i in range(64)]) is None
    assert Delivered.of([], []) is None


def test_the_audit_says_so_and_can_be_stored():
    times = poisson(100, 10.0)
    bad = Audit.of([0.001], [0.001], 0.1, 3, Delivered.of(times, [1.1 * at for at in times]))
    assert bad.verdict == "invalid"
    assert "of 9." in str(bad) or "of 10" in str(bad)
    assert asdict(bad)["delivered"]["arrivals"] == 100
    assert 5 < bad.rss_mb < 2000


class Overloaded:
    """A client that keeps the loop busy: it cannot send what is due."""

    def __init__(self, seconds):
        self.seconds = seconds

    async def complete(self, request):
        t = time.monotonic()
        while time.monotonic() - t < self.seconds:
            pass
        return Response(tuple(range(request.output_tokens)), len(request.prompt), 1, t, t, t)


async def one_call(session):
    await session.call(new=4, output=1)


def test_a_run_that_is_overloaded_on_purpose_is_invalid():
    times = [0.005 * i for i in range(60)]
    specs = [ProgramSpec(i, "test", i, one_call) for i in range(60)]
    live = run(drive_live(specs, times, Overloaded(0.01), TokenIds(100, "s")))
    assert live.audit.verdict == "invalid"
    assert live.audit.delivered.arrivals == 60
    assert not live.audit.delivered.rate_holds
    assert live.audit.delivered.sent_per_s < 110


@pytest.mark.parametrize("loop", [run, asyncio.run], ids=["uvloop", "asyncio"])
def test_nobody_wakes_early(loop):
    async def go():
        early = []
        for i in range(1, 30):
            at = time.monotonic() + 0.00037 * i
            await sleep_until(at)
            early.append(at - time.monotonic())
        return max(early)

    assert loop(go()) <= 0.0

"""What benchmarks/client.py concludes from a client's rows and the server's log."""

import pytest

from benchmarks import client
from tests.golden_server import Sent

STREAMS = 4


def played(late, wait=0.0):
    """Rows and log of calls whose chunks all arrive ``late`` seconds after they were sent, and whose streams
    pause for ``wait`` between calls."""
    rows, log = [], {}
    for stream in range(STREAMS):
        for turn in range(6):
            sent = 100.0 + turn * (client.CYCLE_S + wait)
            chunks = [(sent + client.TTFT_S + i * client.GAP_S, 1) for i in range(client.TOKENS)]
            name = f"{stream}.{turn}"
            log[name] = Sent(sent, chunks, False)
            rows.append((name, sent, [at + late for at, _ in chunks]))
    return rows, log


def test_biases_are_against_the_servers_log():
    found = client.compared(*played(0.002))
    assert found["ttft_p50_ms"] == pytest.approx(2.0)
    assert found["late_p99_ms"] == pytest.approx(2.0)
    assert found["gap_p99_ms"] == pytest.approx(0.0, abs=1e-6)
    assert found["calls"] == STREAMS * 4, "what was sent in the first second is warm-up"


def test_the_rate_is_that_of_the_streams():
    rows, _ = played(0.0, wait=0.05 * client.CYCLE_S)
    found = client.rate(rows, STREAMS)
    assert found["per_s"] == pytest.approx(found["ideal_per_s"] / 1.05)


def test_streams_that_never_came_to_a_second_call_have_missed_the_rate():
    rows = [("0.0", 100.0, []), ("0.1", 102.0, [])]
    found = client.rate(rows, STREAMS)
    assert found["per_s"] == 0.0
    assert client.missed({"streams": 1, "rss_mb": 1.0, **found}) == ["rate 0.000 < 0.98"]


def test_a_chunk_that_is_missing_ends_the_benchmark():
    rows, log = played(0.0)
    rows[-1][2].pop()
    with pytest.raises(SystemExit, match=r"call 3\.5: 63 chunks received, 64 sent"):
        client.compared(rows, log)


def test_a_bar_that_is_missed_is_said():
    good = {
        "streams": 64,
        "ttft_p50_ms": 0.2,
        "cpu_us": 15.0,
        "rss_mb": 50.0,
        "per_s": 94.0,
        "ideal_per_s": 94.1,
    }
    assert client.missed(good) == []
    assert client.missed(good | {"ttft_p50_ms": 0.6}) == ["ttft_p50_ms 0.60 > 0.5"]
    assert client.missed(good | {"streams": 256, "ttft_p50_ms": 0.6}) == []
    assert len(client.missed(good | {"cpu_us": 21.0, "rss_mb": 120.0, "per_s": 90.0})) == 3

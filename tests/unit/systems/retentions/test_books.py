"""The book of absences, what was lost of a context, and the cost of computing it again."""

import pytest

from systems.latency.catalog import latency_for
from systems.protocols import Away
from systems.retentions import absences as module
from systems.retentions.absences import Absence, Absences
from systems.retentions.continuum_fixed import ContinuumFixed
from systems.retentions.rebuild import TOKEN2_S, TOKEN_S, Rebuild, fitted
from systems.retentions.watching import MOST_EVENTS
from tests.latency_models import LinearLatency
from vocabulary import EngineView


def absence(program, thread="", tokens=100):
    return Absence(Away(program, thread, tokens), 0.0)


def test_threads_leave_and_are_taken_by_name():
    book = Absences()
    one, two, three = absence(1, "a"), absence(1, "b"), absence(2)
    assert [book.leave(row) for row in (one, two, three)] == [[], [], []]
    assert list(book) == [one, two, three]
    assert book.get(1, "b") is two
    assert book.take(1, "c") is None
    again = absence(1, "a")
    assert book.leave(again) == [one]
    assert book.end(1) == [again, two]
    assert (book.end(1), len(book), book.take(2, "")) == ([], 1, three)


def test_the_book_is_bounded(monkeypatch):
    monkeypatch.setattr(module, "MOST", 3)
    book = Absences()
    rows = [absence(i) for i in range(5)]
    assert [book.leave(row) for row in rows] == [[], [], [], [rows[0]], [rows[1]]]
    assert list(book) == rows[2:]


@pytest.mark.parametrize(
    ("tokens", "cached", "prompt", "lost"),
    [(100, 96, 150, 0), (100, 0, 150, 96), (97, 96, 150, 0), (96, 80, 150, 0), (100, 32, 150, 64),
     (100, 32, 40, 0), (0, 0, 5, 0), (100, 400, 500, 0)],
)  # fmt: skip
def test_lost_is_what_could_have_been_found(tokens, cached, prompt, lost):
    """Whole blocks of what both prompts share, without the reply's last token; 40: the prompt was cut."""
    assert absence(1, tokens=tokens).lost(cached, prompt) == lost


def test_rebuild_is_linear_and_quadratic():
    rebuild = Rebuild(1e-3, 1e-6, 0.5)
    assert rebuild.seconds(1000) == pytest.approx(0.5 + 1.0 + 1.0)
    assert rebuild.tail(1000, 1000) == pytest.approx(rebuild.seconds(1000))
    assert rebuild.tail(1000, 100) == pytest.approx(0.5 + 0.1 + 0.19)
    assert rebuild.tail(1000, 0) == 0.0
    with pytest.raises(ValueError, match="above 0"):
        Rebuild(0.0, 0.0)


def test_the_defaults_are_a_fit_of_the_default_model():
    """Within 3 % of the table's own step times, chunk by chunk, at every length."""
    latency = latency_for("llama-3.1-8b", "a100")
    found = fitted(latency)
    assert (found.token_s, found.token2_s) == pytest.approx((TOKEN_S, TOKEN2_S), rel=5e-3)
    total = 0.0
    for start in range(0, 65_536, 2048):
        total += latency.step([(2048, start)], 0, 0)
        assert found.seconds(start + 2048) == pytest.approx(total, rel=0.03)


def test_a_fit_of_times_that_are_of_its_form_is_exact():
    """Each chunk of 2 048: 5 ms, .1 ms a token, 10 ns a token and token before it."""
    found = fitted(LinearLatency())
    assert found.token2_s == pytest.approx(0.5 * 1e-8)
    assert found.token_s == pytest.approx(1e-4 + 5e-3 / 2048 - 0.5 * 1e-8 * 2048)
    flat = fitted(LinearLatency(per_prefill_ctx=0.0))
    assert flat.token_s == pytest.approx(1e-4 + 5e-3 / 2048)
    assert flat.token2_s * 65_536 < 1e-6 * flat.token_s


def test_a_host_that_never_fetches_events_loses_the_older_half(monkeypatch):
    monkeypatch.setattr("systems.retentions.watching.MOST_EVENTS", 10)
    assert MOST_EVENTS > 10
    policy = ContinuumFixed()
    for i in range(12):
        policy.look(EngineView(0, True, 0, 0, 9), 0, float(i))
        policy.idle(Away(i, "", 16, "bash"), float(i))
    assert [event.program for event in policy.events] == [5, 6, 7, 8, 9, 10, 11]


def test_a_thread_that_leaves_twice_was_lost_sight_of():
    policy = ContinuumFixed()
    policy.idle(Away(1, "", 16, "bash"), 0.0)
    policy.idle(Away(1, "", 16, "bash"), 50.0)
    assert len(policy.absences) == 1
    policy.called(1, "", 51.0)
    assert policy._sums == {"bash": (1.0, 1)}

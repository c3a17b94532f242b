"""Programs that stay in the gateway's table are told, after some patience."""

from bench.agents.entries import PATIENCE_S, entries_left


class Clock:
    """Sleeping is all the time that passes."""

    now = 0.0

    def sleep(self, seconds):
        self.now += seconds


def left(tables):
    """``tables``: what the gateway says each time; the last one goes on."""
    clock, asked = Clock(), []

    def ask(url):
        asked.append(url)
        table = tables[min(len(asked), len(tables)) - 1]
        if isinstance(table, Exception):
            raise table
        return table

    found = entries_left("http://x", "run1", ask=ask, clock=lambda: clock.now, sleep=clock.sleep)
    return found, clock.now


def test_what_goes_in_time_and_other_runs_programs_are_no_leak():
    assert left([["run1.3", "run2.1"], ["run2.1", "run12.0"]]) == ([], 0.1)


def test_what_stays_is_named():
    found, waited = left([["run1.3", "run1.0"]])
    assert found == ["program entry run1.0 in the gateway", "program entry run1.3 in the gateway"]
    assert waited > PATIENCE_S


def test_a_gateway_that_does_not_say_is_no_clean_one():
    assert "does not say which programs it knows" in left([OSError("refused")])[0][0]

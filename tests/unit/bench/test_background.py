import os
import signal

import pytest

from bench.background import in_background


def test_the_work_is_done_in_another_process():
    get = in_background(lambda: (os.getpid(), sum(range(1000))))
    pid, total = get()
    assert pid != os.getpid()
    assert total == 499500


def test_what_fails_there_fails_here():
    def work():
        raise ValueError("a broken program")

    with pytest.raises(ValueError, match="a broken program"):
        in_background(work)()


def test_a_killed_process_costs_time_only():
    here = os.getpid()

    def work():
        if os.getpid() != here:
            os.kill(os.getpid(), signal.SIGKILL)
        return "done"

    assert in_background(work)() == "done"

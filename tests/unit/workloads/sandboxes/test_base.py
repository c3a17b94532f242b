import asyncio

import pytest

from workloads.sandboxes.base import outcome, reason
from workloads.sandboxes.contract import Executed, SandboxError

SAYS = "dd: error writing 'x': No space left on device\n"


@pytest.mark.parametrize(
    ("done", "full", "said"),
    [
        (Executed(0, "", 1.0), False, ""),
        (Executed(3, "", 1.0), False, "exit 3"),
        (Executed(-11, "", 1.0), False, "exit -11"),
        (Executed(-9, SAYS, 1.0, timed_out=True), True, "timeout"),
        (Executed(1, SAYS, 1.0), False, "disk full"),
        (Executed(1, "echo: I/O error", 1.0), True, "disk full"),
        (Executed(0, SAYS, 1.0), True, "disk full"),
        (Executed(0, SAYS, 1.0), False, ""),
        (Executed(0, "it filled the disk to the last block", 1.0), True, ""),
    ],
)
def test_what_came_of_a_command(done, full, said):
    assert outcome(done, full) == said


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError(28, "No space left on device"), "No space left on device"),
        (SandboxError("sandbox a (docker): cannot run it: it is\n gone"), "it is gone"),
        (asyncio.CancelledError(), "cancelled"),
        (ValueError(), "ValueError"),
        (SandboxError("x" * 300), "x" * 80),
    ],
)
def test_an_error_in_a_word_or_two(error, said):
    assert reason(error) == said

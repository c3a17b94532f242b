"""Programs and policies of the user that fail: one line that names them, and an exit code that is not 0."""

import pytest
from typer.testing import CliRunner

from bench.cli.main import app
from systems.schedulers.fcfs import Fcfs

HERE = "tests.unit.bench.test_foreign"


async def leaves(session):
    await session.call(new=10, output=2)
    raise SystemExit(0)


class Leaves(Fcfs):
    """Cannot be made."""

    def __init__(self):
        raise SystemExit


def bench(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


def run(tmp_path, system="vllm-opt", workload="chatbot", *words):
    return bench(
        "run", "--system", system, "--workload", workload, "-n", 3, "--rate", 1, "--out", tmp_path, *words
    )


def fails(got, code, *says):
    assert (got.exit_code, len(got.output.splitlines())) == (code, 1), got.output
    assert "internal error" not in got.output
    for text in says:
        assert text in got.output


@pytest.mark.parametrize("verb", ["run", "stats"])
def test_a_program_that_exits_is_a_failed_program(tmp_path, verb):
    workload = f"{HERE}:leaves"
    got = bench("trace", "stats", workload) if verb == "stats" else run(tmp_path, workload=workload)
    fails(got, 4, workload, "SystemExit: 0")


def test_a_policy_that_cannot_be_made_is_named(tmp_path):
    fails(run(tmp_path, f"{HERE}:Leaves"), 2, f"{HERE}:Leaves cannot be made: SystemExit")

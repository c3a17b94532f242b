"""`bench run --engine vllm-virtual`, as in the README: the same result hash as on the simulated engine.

Where calls are preempted, by recompute: vLLM V1 has no swap, and its fallback is another run.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.live


def result_hash(folder: Path, engine: str, *words: str) -> str:
    command = [
        sys.executable,
        "-m",
        "bench.cli.main",
        "run",
        "--engine",
        engine,
        "--out",
        str(folder),
        "--json",
    ]
    done = subprocess.run([*command, *words], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert "SIMULATED" in summary["badge"]
    return str(summary["result_hash"])


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(
            ("--system", "atlas", "--workload", "mcts", "-n", "1", "--rate", "0.5"), marks=pytest.mark.slow
        ),
        ("--system", "plas", "--workload", "chatbot", "-n", "12", "--knob", "engine.kv_blocks=600",
         "-p", "token_scale=1/4", "--rate", "5", "--knob", "engine.max_num_seqs=4",
         "--knob", "engine.preemption=recompute"),
        pytest.param(
            ("--system", "mlfq", "--workload", "chatbot", "-n", "9", "-p", "token_scale=1/4",
             "--concurrency", "5"),
            marks=pytest.mark.slow,
        ),
    ],
    ids=["atlas-mcts", "plas-chatbot-tight", "mlfq-closed-loop"],
)  # fmt: skip
def test_the_command_line_gives_the_same_result_on_both_hosts(words: tuple[str, ...], tmp_path: Path) -> None:
    assert result_hash(tmp_path, "vllm-virtual", *words) == result_hash(tmp_path, "sim", *words)

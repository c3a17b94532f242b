"""e: the server of part d under conversations and agents that fork, with KV that runs short."""

from __future__ import annotations

from bench.fidelity.server_setup import Setup
from bench.fidelity.server_study import ServerPart

SETUP = Setup(
    name="e-agents",
    workload="mixed",
    parameters={"max_context": "2048", "mcts.iterations": "2", "mcts.tool_s": "0.05"},
    token_scale=0.125,
    kv_blocks=96,
    max_num_seqs=8,
    pilot=30,
    horizon=18.0,
    shares={"low": 0.5, "fit": 0.8, "high": 1.4},
)
"""Conversations, tool users and tree searches (two iterations, searches of 50 ms) in equal shares: 15 calls
a program in the mean. KV of 3 072 tokens for 8 calls of 420 tokens in the mean, 2 048 at most."""

PART = ServerPart(
    SETUP,
    "e. A real vLLM server, conversations and agents",
    "vLLM's environment, two quiet cores; about 9 minutes",
)

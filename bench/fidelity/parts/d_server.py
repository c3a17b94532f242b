"""d: a real vLLM server on this machine's CPU under single calls, fitted at one rate and predicted at two."""

from __future__ import annotations

from bench.fidelity.server_setup import Setup
from bench.fidelity.server_study import ServerPart

SETUP = Setup(
    name="d-server",
    workload="chatbot",
    parameters={"calls": "1"},
    token_scale=0.25,
    kv_blocks=1024,
    max_num_seqs=16,
    pilot=120,
    horizon=12.0,
    shares={"low": 0.4, "fit": 0.8, "high": 1.15},
)
"""Conversations of one call: prompts of 81 and replies of 73 tokens in the mean, with the chatbot's long
tails. KV for every call; slots are what runs short."""

PART = ServerPart(
    SETUP, "d. A real vLLM server, single calls", "vLLM's environment, two quiet cores; about 7 minutes"
)

"""What a window of a run is asked: every number by name, with its unit."""

from __future__ import annotations

QUANTITIES = {
    "steps_per_min": "steps per minute",
    "hit": "prefix hits, share of prompt tokens",
    "latency": "mean latency of a step's call, s",
    "latency_p99": "p99 latency of a step's call, s",
    "wait_p99": "p99 wait of a call, at the gate and in the engine, s",
    "hold_p99": "p99 hold at the gate, s",
    "hold_max": "longest hold at the gate, s",
    "held_over_600": "share of programs with a call held over 600 s",
    "cycle": "mean cycle (call to the next call), s",
    "little": "steps/s x cycle over programs at a time",
    "in_loop": "threads in the loop, time average",
    "pressure": "working set over KV",
    "recompute": "prefill tokens computed per step",
    "tokens_per_s": "tokens/s, prompt and reply",
    "output_per_s": "reply tokens/s",
    "calls_per_s": "calls/s",
    "imbalance": "largest difference of KV in use between engines, share",
    "imbalance_minutes": "share of time with KV in use over .2 apart",
    "first_small": "time to the first response, smaller half of programs, s",
    "first_large": "time to the first response, larger half of programs, s",
    "makespan": "fixed work: all programs' end, s",
    "work_per_min": "fixed work: steps of all programs over the makespan, per minute",
    "env_wait": "wait for environments, s per program",
    "env_prepare": "from asking for an environment to having it, s",
    "peak_disk_gb": "most disk of environments, GB",
    "regret": "mean regret of a decision to keep or evict, block-seconds",
    "program_s": "mean time of a program, s",
    "program_p99": "p99 time of a program, s",
}
"""Name -> what it is. A step is a call and what follows it (a tool, usually), counted where the call ends."""
WHOLE_RUN = frozenset(
    {
        "first_small",
        "first_large",
        "makespan",
        "work_per_min",
        "env_wait",
        "env_prepare",
        "peak_disk_gb",
        "regret",
        "program_s",
        "program_p99",
    }
)
"""Those that are about the whole run, warm-up and drain included; the others are about the window."""

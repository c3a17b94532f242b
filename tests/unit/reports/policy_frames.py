"""Small synthetic frames of runs with gates, as docs/report.md describes them."""

import itertools

import numpy as np
import pandas as pd

SYSTEMS = ("vllm-base", "vllm-opt", "mlfq", "thunderagent")
WORKLOADS = ("chatbot:v3_split", "rollout:mini")
LOADS = ("24 at all times",)
SHARES = {"decode": 0.4, "prefill": 0.05, "recompute": 0.1, "caching": 0.25, "unused": 0.2}


def places(seeds=(1, 2)):
    """Where a row belongs."""
    for workload, load, system, seed in itertools.product(WORKLOADS, LOADS, SYSTEMS, seeds):
        yield {"workload": workload, "model": "llama-3.1-8b", "system": system, "rate": np.nan, "load": load,
               "seed": seed}  # fmt: skip


def kv_costs():
    rows = []
    for place in places():
        bounds = {"caching_low": 0.1, "caching_high": 0.4}
        steps = {f"{name}_per_step": 30_000 * v for name, v in SHARES.items()}
        rows.append(place | SHARES | bounds | steps)
    return pd.DataFrame(rows)


def holds():
    rng = np.random.default_rng(3)
    some = [place for place in places() if place["system"] in ("mlfq", "thunderagent")]
    rows = [
        place
        | {"bin": k, "context": 4000.0 * (k + 1), "n": 20, "hold": 9.0 * k + rng.random()}
        | {"most": 40.0 * k, "long_share": 0.1 * k}
        for place in some
        for k in range(4)
    ]
    return pd.DataFrame(rows)


def worst_turns():
    rng = np.random.default_rng(4)
    return pd.DataFrame(
        [place | {"program": p, "worst": float(rng.lognormal(2, 1))} for place in places() for p in range(9)]
    )


def steps_over_time():
    return pd.DataFrame(
        [place | {"minute": 0.5 + k, "per_min": 90.0 + k} for place in places() for k in range(24)]
    )


def imbalance():
    return pd.DataFrame(
        [
            place | {"time": 10.0 * k, "s": 10.0, "gap": (k % 7) / 10}
            for place in places((1,))
            for k in range(30)
        ]
    )


def engines_over_time():
    return pd.DataFrame(
        [
            place
            | {"engine": engine, "minute": k / 6, "used": 0.5, "cached": 0.1 * (k % 5), "running": 3,
               "waiting": k % 3, "held": k % 4}
            for place in places((1,))
            if place["system"] in ("vllm-opt", "thunderagent")
            for k in range(20)
            for engine in (0, 1)
        ]
    )  # fmt: skip


def disk():
    return pd.DataFrame(
        [place | {"minute": k / 6, "gb": 45.0 + 8 * k} for place in places((1,)) for k in range(20)]
    )


def regrets():
    tools = {"bash": 200.0, "browser": 900.0}
    return pd.DataFrame(
        [
            place | {"tool": tool, "n": 40, "kept": 30, "evicted": 10, "regret": regret}
            for place in places()
            for tool, regret in tools.items()
        ]
    )


def everything():
    return {
        "disk": disk(), "regrets": regrets(),
        "kv_costs": kv_costs(), "holds": holds(), "worst_turns": worst_turns(), "imbalance": imbalance(),
        "steps_over_time": steps_over_time(), "engines_over_time": engines_over_time(),
    }  # fmt: skip

"""Small synthetic frames of every kind, as docs/report.md describes them."""

import itertools
import math

import numpy as np
import pandas as pd

from tests.unit.reports import loop_frames, policy_frames

SYSTEMS = ("vllm-base", "vllm-opt", "mlfq", "autellix", "srpt")
WORKLOADS = {"chatbot:v3_split": 2.5, "react:bfcl": 0.6, "mcts:tot": 0.2, "mixed": 0.5}
"""Workload -> the rate (programs/s) at which vllm-opt saturates on the smallest model."""
MODELS = {"llama-3.1-8b": 1.0, "llama-3.1-70b": 0.6, "falcon-180b": 0.4}
MULTIPLES = (0.5, 0.8, 0.9, 1.0, 1.15, 1.4)
BADGE = "SIMULATED (engine sim), 1 x a table"


def latency(place, multiple, rng):
    """s/token: flat, then steep; later for a better system."""
    room = 0.75 + 0.16 * place
    return 0.04 + 0.02 * multiple + 4 * max(0.0, multiple - room) ** 1.3 * math.exp(rng.normal(0, 0.15))


def points(workloads=WORKLOADS, models=MODELS, systems=SYSTEMS, seeds=3, multiples=MULTIPLES):
    rng = np.random.default_rng(5)
    rows = []
    grid = itertools.product(models, workloads, systems, multiples, range(1, seeds + 1))
    for model, workload, system, multiple, seed in grid:
        mean = latency(SYSTEMS.index(system), multiple, rng)
        saturation = workloads[workload] * models[model]
        rows.append(
            {
                "workload": workload, "model": model, "gpu": "a100", "system": system,
                "rate": round(multiple * saturation, 6), "multiple": multiple, "seed": seed, "horizon": 900.0,
                "badge": BADGE, "sustainable": multiple < 0.8 + 0.14 * SYSTEMS.index(system),
                "transient.mean_of_ratios": mean, "transient.p95": 2.5 * mean, "transient.p99": 4 * mean,
                "program.s_per_token.mean_of_ratios": mean,
                "measured.programs_per_s": saturation * min(multiple, 1.0) * (1 + rng.normal(0, 0.01)),
            }
        )  # fmt: skip
    return pd.DataFrame(rows)


def claims(workloads=WORKLOADS, models=MODELS):
    rows = []
    for model, workload in itertools.product(models, workloads):
        for k, (base, stated) in enumerate((("vllm-base", 8.0), ("vllm-opt", 2.0), ("mlfq", 1.5))):
            got = stated * (0.6 + 0.25 * k)
            rows.append(
                {"id": f"{workload}-{model}-{base}", "source": "paper", "workload": workload, "model": model,
                 "statement": f"up to {stated:g}x the rate of {base} at equal latency",
                 "quantity": f"rate over {base}", "expected": stated, "got": got, "low": 0.9 * got,
                 "high": 1.1 * got, "seeds": 8, "sustained": "not testable here",
                 "transient": ("not reproduced", "partly", "reproduced")[k], "note": "<b>why</b>"}
            )  # fmt: skip
    return pd.DataFrame(rows)


def paper_axes(workloads=WORKLOADS, models=MODELS):
    return pd.DataFrame(
        [
            {"workload": w, "model": m, "low": 0.3 * r * s, "high": 0.9 * r * s}
            for (w, r), (m, s) in itertools.product(workloads.items(), models.items())
        ]
    )


def crossings():
    rows = []
    for (workload, rate), (k, system), level in itertools.product(
        WORKLOADS.items(), enumerate(SYSTEMS), (0.2, 0.3, 0.5)
    ):
        at = rate * (0.9 + 0.15 * k + 0.2 * level)
        rows.append([workload, "llama-3.1-8b", system, level, at, 0.97 * at, 1.04 * at])
    rows[2][4:] = [math.nan, 4.0, math.inf]
    rows[3][4:] = [math.nan, 0.0, 1.0]
    return pd.DataFrame(rows, columns=["workload", "model", "system", "latency", "rate", "low", "high"])


def horizons():
    rng = np.random.default_rng(7)
    rows = []
    grid = itertools.product(("chatbot:v3_split", "mixed"), (1.0, 2.0), (300, 900, 2700), range(1, 4))
    for workload, rate, horizon, seed in grid:
        for k, system in enumerate(SYSTEMS):
            value = (1.0 + horizon / 900) / (1 + 0.3 * k) * math.exp(rng.normal(0, 0.05))
            rows.append([workload, "llama-3.1-8b", system, rate, float(horizon), seed, value])
    return pd.DataFrame(
        rows,
        columns=["workload", "model", "system", "rate", "horizon", "seed", "transient.mean_of_ratios"],
    )


def sensitivity():
    rng = np.random.default_rng(9)
    rows = []
    knobs = {"scheduler.beta": (1, 4, 16), "levels": (2, 4, 8), "engine.schedule_every": (1, 4, 8)}
    for workload, (k, (knob, values)) in itertools.product(
        ("chatbot:v3_split", "mixed"), enumerate(knobs.items())
    ):
        for place, value in enumerate(values):
            for seed in range(1, 4):
                ratio = 1.0 if place == 1 else math.exp(0.1 * (k + 1) * (place - 1) + rng.normal(0, 0.02))
                rows.append([workload, knob, str(value), place == 1, seed, ratio])
    frame = pd.DataFrame(rows, columns=["workload", "knob", "value", "default", "seed", "ratio_to_default"])
    return frame.assign(
        **{"transient.mean_of_ratios": frame.ratio_to_default * 0.2, "low": math.nan, "high": math.nan}
    )


def split():
    rows = []
    for workload, rate, (k, system), path in itertools.product(
        ("chatbot:v3_split", "mixed"), (1.0, 2.0, 3.0), enumerate(SYSTEMS), ("all calls", "critical path")
    ):
        rows.append(
            {"workload": workload, "model": "llama-3.1-8b", "system": system, "rate": rate, "path": path,
             "wait_s": 4 * rate / (1 + k), "prefill_s": 1.0, "reprefill_s": 0.2 * k, "decode_s": 8.0,
             "swap_s": 0.5 * (k > 2), "tool_s": 2.0, "think_s": 0.0, "overhead_s": 0.0}
        )  # fmt: skip
    return pd.DataFrame(rows)


def bins(sizes):
    rows = []
    for workload, rate, (k, system) in itertools.product(
        ("chatbot:v3_split", "mcts:tot"), (1.0, 2.0), enumerate(SYSTEMS)
    ):
        for low, high in itertools.pairwise(sizes):
            ratio = rate * 3 / (1 + k) * (sizes[-1] / high) ** 0.3
            rows.append(
                [workload, "llama-3.1-8b", system, rate, low, high - 1, 40, ratio, 0.9 * ratio, 1.2 * ratio]
            )
    columns = ["workload", "model", "system", "rate", "bin_low", "bin_high", "n", "ratio", "low", "high"]
    return pd.DataFrame(rows, columns=columns)


def hits():
    rng = np.random.default_rng(11)
    rows = [
        [w, "llama-3.1-8b", s, rate, seed, 0.9 - 0.1 * rate + 0.03 * k + rng.normal(0, 0.01), 0.95]
        for w, rate, seed, (k, s) in itertools.product(
            ("chatbot:v3_split", "mcts:tot"), (1.0, 2.0, 3.0), range(1, 4), enumerate(SYSTEMS)
        )
    ]
    return pd.DataFrame(rows, columns=["workload", "model", "system", "rate", "seed", "hit_rate", "optimum"])


def agents():
    rows = [
        {"workload": workload, "model": "tiny-llama", "load": "8 at all times", "system": system, "seeds": 1,
         "programs": 24, "solved": 70.0 + 5 * k, "solved_low": 50.0 + 5 * k, "solved_high": 85.0 + 3 * k,
         "latency": 12.0 / (1 + k), "latency_low": 10.0 / (1 + k), "latency_high": 15.0 / (1 + k)}
        for workload in ("agents:react in bwrap", "agents:mcts", *ONE_WORKLOAD)
        for k, system in enumerate(("vllm-opt", "atlas"))
    ]  # fmt: skip
    return pd.DataFrame(rows)


ONE_WORKLOAD = ("chatbot:v3_split",)
"""Of small reports, which keep this workload only."""


def everything():
    return {
        "points": points(), "claims": claims(), "paper_axes": paper_axes(), "crossings": crossings(),
        "horizons": horizons(), "sensitivity": sensitivity(), "split": split(),
        "bins_calls": bins((1, 40, 90, 180, 400, 900)), "bins_programs": bins((1, 3, 6, 12, 40)),
        "hits": hits(), "agents": agents(), **loop_frames.everything(), **policy_frames.everything(),
    }  # fmt: skip

"""Small synthetic frames of closed loops and of a map of who wins (docs/report.md)."""

import itertools

import numpy as np
import pandas as pd

BADGE = "SIMULATED (engine sim), 1 x a table"
WORKLOADS = ("chatbot:v3_split", "mixed")
SYSTEMS = ("vLLM", "Continuum", "ThunderAgent")
PLACES = (24.0, 48.0, 96.0)


def loop_points(seeds=3):
    rng = np.random.default_rng(13)
    return pd.DataFrame(
        [
            {"workload": w, "model": "glm-4.6-fp8", "system": s, "place": n, "open": False, "seed": seed,
             "covered": 1.0, "badge": BADGE, "steps_per_min": (1 + k) * n ** 0.5 + rng.normal(0, 0.1),
             "hit": 0.3 + 0.2 * k + rng.normal(0, 0.01)}
            for w, (k, s), n, seed in itertools.product(
                WORKLOADS, enumerate(SYSTEMS), PLACES, range(1, seeds + 1)
            )
        ]
    )  # fmt: skip


def loop_paper():
    return pd.DataFrame(
        [
            {
                "workload": w,
                "model": "glm-4.6-fp8",
                "system": s,
                "place": n,
                "quantity": q,
                "value": v * n**0.5,
            }
            for w, s, n, (q, v) in itertools.product(
                WORKLOADS, SYSTEMS, PLACES, (("steps_per_min", 2.0), ("hit", 0.05))
            )
        ]
    )


def settle():
    return pd.DataFrame(
        [
            {"workload": "chatbot:v3_split", "x": f"pressure {x}", "y": f"tools {y}", "map": m,
             "winner": SYSTEMS[(i + j) % 3], "gain": 1.0 + 0.2 * i, "second": SYSTEMS[(i + j + 1) % 3],
             "clear": i > 0, "unknown": "", "seeds": 8, "badge": BADGE}
            for (i, x), (j, y), m in itertools.product(
                enumerate(("0.8", "1.2", "2")), enumerate(("heavy", "exponential")),
                ("release on", "release off"),
            )
        ]
    )  # fmt: skip


def settle_marks():
    place = {"workload": "chatbot:v3_split", "x": "pressure 1.2", "y": "tools heavy", "map": "release on"}
    return pd.DataFrame([{**place, "label": "A: a paper", "note": ""}, {**place, "label": "B", "note": ""}])


def everything():
    return {
        "loop_points": loop_points(), "loop_paper": loop_paper(), "settle": settle(),
        "settle_marks": settle_marks(),
    }  # fmt: skip

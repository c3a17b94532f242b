"""Recordings made by the simulator itself under step times that are known."""

import json
from random import Random

from bench.calibration.recordings import Facts, Recording, Request
from bench.calibration.replay import engine_for, replay
from bench.calibration.subject import Requests, subject
from systems.latency import ScaledLatency, latency_for

MODEL, GPU = "llama-3.1-8b", "a100"
LIMITS = {"kv_blocks": 3000}


def requests(n=60, seed=1, rate=1.0):
    """``n`` requests with short and long prompts, Poisson."""
    rnd, time, made = Random(seed), 5.0, []
    for _ in range(n):
        time += rnd.expovariate(rate)
        made.append(Request(time, rnd.randint(50, 6000), rnd.randint(2, 300)))
    return made


def served(scale=1.0, extra_ms=0.0, n=60, seed=1, path="made.jsonl"):
    """A recording of them on an engine with these step times."""
    latency = latency_for(MODEL, GPU)
    facts = Facts("requests", path, MODEL, GPU, LIMITS, source={"made": "here"})
    asked = requests(n, seed)
    played = replay(asked, engine_for(latency, facts, {}), ScaledLatency(latency, scale, extra_ms))
    rows = [
        r._replace(ttft=float(t[0]), tpot=float(t[1]) if r.output > 1 else None, e2e=float(t[2]))
        for r, t in zip(asked, played.times(), strict=True)
    ]
    return Recording(facts, rows)


def as_subject(recording) -> Requests:
    """What ``calibrate`` takes."""
    return subject(recording, None, None, {})


def write_jsonl(path, recording):
    """The recording in the plain format."""
    lines = [
        {
            "arrival": r.arrival, "input_tokens": r.prompt, "output_tokens": r.output,
            "ttft_s": r.ttft, "tpot_s": r.tpot, "e2e_s": r.e2e,
        }
        for r in recording.requests
    ]  # fmt: skip
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path

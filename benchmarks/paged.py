"""A paged engine in PyTorch, planned by this project's reference engine, against the simulator.

    python3 benchmarks/paged.py [--out FILE]            # on a GPU: Llama-3.1-8B in bfloat16
    python3 benchmarks/paged.py --device cpu --quick    # a small model in float32

Holds the engine to plain forward passes, warms up, measures how fast it can go, fits step times on one
run of each workload, then measures every policy on other seeds and rates and simulates the same
(docs/paged-engine.md).
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from itertools import combinations, product
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.drivers.virtual import drive
from bench.records import MemorySink
from benchmarks.paged_engine.check import Verdict, check, compare
from benchmarks.paged_engine.engine import Execution, PagedEngine, Served, Timed
from benchmarks.paged_engine.model import SHAPES, Llama
from benchmarks.step_fit import Fitted, coefficients, nonnegative, seconds, separated
from systems.catalog import build_router, build_scheduler, build_table, load_system
from systems.engines.sim import SimEngine
from systems.latency import ScaledLatency, latency_for
from systems.latency.calibration import Calibration, HeldOut, LinearLatency
from vocabulary import EngineConfig
from workloads import chatbot, mcts
from workloads.arrivals import poisson
from workloads.base import ProgramSpec

SCHEDULERS = ("fcfs", "plas", "atlas", "mlfq")
FIT_LOAD, LOADS = 1.0, (1.5, 2.5)
"""Programs per second, as a multiple of what the engine gets through when all arrive at once."""
OWN_SPEED = "fit at the run's own speed"
"""No prediction: the fit times what the run's steps took more or less than it says, all told. What is
left is not the machine's drift between the fit and the run."""
AUDITED = 8
"""Calls of the measured model that are held to a plain forward pass."""
SIZES = {
    "llama-3.1-8b": (0.25, {"chatbot": 32, "mcts": 10}, EngineConfig(320, 8, 1024, 2048)),
    "small": (0.1, {"chatbot": 24, "mcts": 8}, EngineConfig(64, 4, 128, 512)),
    "tiny": (0.1, {"chatbot": 24, "mcts": 8}, EngineConfig(64, 4, 128, 512)),
}
"""Factor on the workloads' tokens, programs per run, and engine limits that make calls wait."""


class Bench:
    """The runs on one device. ``capacity``: programs per second of each workload."""

    def __init__(self, name: str, options: argparse.Namespace) -> None:
        self.scale, programs, self.config = SIZES[name]
        self.programs = {k: options.programs or n // (1 + options.quick) for k, n in programs.items()}
        dtype = torch.bfloat16 if options.device == "cuda" else torch.float32
        self.model = Llama(SHAPES[name], self.config.kv_blocks, 1, options.device, dtype)
        self.repeat, self.done = options.repeat, list[Served]()
        self.capacity: dict[str, float] = {}

    def specs(self, workload: str, seed: int) -> Sequence[ProgramSpec]:
        """Conversations that fit the model; tree searches of a few rounds, with tools as much faster."""
        own = {"max_context": self.config.max_model_len}
        if workload == "mcts":
            own = {"iterations": 6, "tool_s": 0.9 * self.scale}
        build = {"chatbot": chatbot.WORKLOAD, "mcts": mcts.WORKLOAD}[workload].build
        return build(self.programs[workload], seed, None, {"token_scale": self.scale, **own}).programs

    def run(self, workload: str, seed: int, load: float, scheduler: str, latency: Any) -> MemorySink:
        """One run, on the device if ``latency`` is an ``Execution``; ``load`` 0: all arrive at once."""
        bounds = ",".join(f"{64 * self.scale * 4**i:g}" for i in range(5))
        knobs = {} if scheduler == "fcfs" else {"scheduler.bounds": bounds}
        spec = load_system("vllm-opt", scheduler=scheduler, knobs=knobs)
        table, log, specs = build_table(spec), MemorySink(), self.specs(workload, seed)
        kind: Any = PagedEngine if isinstance(latency, Execution) else SimEngine
        engine = kind(0, self.config, build_scheduler(spec, table), latency)
        times = poisson(load * self.capacity[workload] if load else 1e6, len(specs), seed)
        drive(specs, times=times, engines=[engine], router=build_router(spec), table=table, sink=log)
        log.programs.sort(key=lambda row: row.program)
        return log

    def steps(self, seed: int, load: float) -> list[Timed]:
        """The steps of one measured run of each workload, fcfs."""
        found: list[Timed] = []
        self.done.clear()
        for workload in self.programs:
            execution = Execution(self.model, self.repeat)
            self.run(workload, seed, load, "fcfs", execution)
            found += execution.log
            self.done += execution.done.values()
            self.capacity.setdefault(workload, self.programs[workload] / sum(seconds(execution.log)))
        return found

    def shrink(self, part: float) -> None:
        """Only so many of the programs, if that is less than all."""
        self.programs = {name: max(4, int(n * min(1.0, part))) for name, n in self.programs.items()}
        print(f"programs per run: {self.programs}", flush=True)

    def models(self, steps: Sequence[Timed], gpu: str) -> dict[str, Any]:
        """Step times by name: two fits, and our table of this GPU, raw and with two numbers fitted."""
        found: dict[str, Any] = {"fit": Fitted("fit", steps)}
        found["linear"] = LinearLatency("linear", coefficients(steps))
        if gpu:
            found["table"] = table = latency_for("llama-3.1-8b", gpu)
            scale, extra = nonnegative([(table.step(*step[:3]), 1) for step in steps], seconds(steps))
            found["table, calibrated"] = ScaledLatency(table, scale, 1e3 * extra)
        return found


def numbers(log: MemorySink) -> dict[str, float]:
    """Seconds: program latency (mean, p95), TTFT and TPOT (means over calls)."""
    latency = latencies(log)
    longer = [call for call in log.calls if call.output_tokens > 1]
    return {
        "latency mean": float(latency.mean()), "latency p95": float(np.quantile(latency, 0.95)),
        "TTFT": float(np.mean([call.t_first_token - call.t_arrive for call in log.calls])),
        "TPOT": float(np.mean([(c.t_end - c.t_first_token) / (c.output_tokens - 1) for c in longer])),
    }  # fmt: skip


def latencies(log: MemorySink) -> Any:
    """Seconds per program."""
    return np.array([row.t_end - row.t_arrive for row in log.programs])


def versus(bench: Bench, models: dict[str, Any], seed: int) -> dict[str, Any]:
    """Every policy at ``LOADS``, measured and predicted by each model: cells, and what they say."""
    cells, steps, latency = [], [], {}
    for (number, load), workload, scheduler in product(enumerate(LOADS), bench.programs, SCHEDULERS):
        where = workload, seed + number, load, scheduler
        execution = Execution(bench.model, bench.repeat)
        real, off = bench.run(*where, execution), of_steps(execution.log, models)
        told = {name: bench.run(*where, model) for name, model in models.items()}
        own = ScaledLatency(models["fit"], 1 / (1 + off["fit"]["of the sum"]))
        cells.append(cell(where, real, told | {OWN_SPEED: bench.run(*where, own)}) | {"errors of steps": off})
        latency[where] = latencies(real), latencies(told["fit"])
        steps += execution.log
        print(line(cells[-1]), flush=True)
    return {
        "steps": {"count": len(steps), "seconds": sum(seconds(steps)),
                  "on device": sum(step.device_s for step in steps),
                  "computed again": sum(step.again for step in steps)},
        "errors of steps": of_steps(steps, models), "errors": overall(cells), "order": order(latency),
        "cells": cells,
    }  # fmt: skip


def cell(where: tuple[str, int, float, str], real: MemorySink, told: dict[str, MemorySink]) -> dict[str, Any]:
    """One run, measured and predicted."""
    measured, predicted = numbers(real), {name: numbers(log) for name, log in told.items()}
    errors = {
        name: {key: value / measured[key] - 1 for key, value in found.items()}
        for name, found in predicted.items()
    }
    about = dict(zip(("workload", "seed", "load", "scheduler"), where, strict=True))
    preemptions = sum(call.preemptions for call in real.calls)
    return {
        **about,
        "preemptions": preemptions,
        "measured": measured,
        "predicted": predicted,
        "errors": errors,
    }


def line(cell: dict[str, Any]) -> str:
    """A cell in words: what was measured, in brackets the error of the fit; at the end that of its steps."""
    errors, off = cell["errors"]["fit"], cell["errors of steps"]["fit"]["of the sum"]
    words = (f"{key} {value:.3f} s ({errors[key]:+.1%})" for key, value in cell["measured"].items())
    return f"{cell['workload']} x{cell['load']:g} {cell['scheduler']}: {', '.join(words)}, steps {off:+.1%}"


def overall(cells: Sequence[dict[str, Any]]) -> dict[str, dict[str, dict[str, float]]]:
    """Of each model and metric: mean and largest absolute relative error over the cells."""
    found: dict[str, dict[str, dict[str, float]]] = {}
    for name, metric in product(cells[0]["errors"], cells[0]["measured"]):
        off = np.abs([each["errors"][name][metric] for each in cells])
        found.setdefault(name, {})[metric] = {"mean": float(off.mean()), "largest": float(off.max())}
    return found


def of_steps(steps: Sequence[Timed], models: dict[str, Any]) -> dict[str, dict[str, float]]:
    """Of each model: mean absolute relative error of a step's seconds, and the error of their sum."""
    took, found = seconds(steps), {}
    for name, model in models.items():
        told = np.array([model.step(*step[:3]) for step in steps])
        mean, whole = np.abs(told / took - 1).mean(), told.sum() / took.sum() - 1
        found[name] = {"mean": float(mean), "of the sum": float(whole)}
    return found


def order(latency: dict[Any, Any]) -> dict[str, Any]:
    """Pairs of policies whose measured latencies separate, and those that the fit puts the other way."""
    pairs = [pair for pair in combinations(latency, 2) if pair[0][:3] == pair[1][:3]]
    signs = {pair: separated(*(latency[where][0] for where in pair)) for pair in pairs}
    gaps = {pair: latency[pair[0]][1].mean() - latency[pair[1]][1].mean() for pair in pairs}
    wrong = [f"{a[0]} x{a[2]:g}: {a[3]}, {b[3]}" for a, b in pairs if signs[a, b] * gaps[a, b] < 0]
    return {"pairs": len(pairs), "separated": sum(map(abs, signs.values())), "the other way": wrong}


def main() -> None:
    """Check, measure, print, write; exit status 1 if the engine computed something wrong."""
    options = _options()
    torch.set_num_threads(options.threads)
    begin = time.monotonic()
    result = measure(options, begin + 60 * options.minutes)
    shown = {key: value for key, value in result.items() if key not in ("cells", "checked")}
    print(json.dumps(shown | {"wall_s": round(time.monotonic() - begin)}, indent=1))
    if options.out:
        options.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    if options.calibration:
        options.calibration.write_text(calibration(result).as_json(), encoding="utf-8")
    if any(verdict["wrong"] for verdict in result["checked"]):
        sys.exit("the paged engine computed wrong tokens: see CHECK above")


def measure(options: argparse.Namespace, until: float) -> dict[str, Any]:
    """Everything, in about the time to ``until`` (``time.monotonic``); what the JSON file holds."""
    cuda = options.device == "cuda"
    device = torch.cuda.get_device_name() if cuda else platform.machine()
    name = options.model or ("llama-3.1-8b" if cuda else "small")
    gpu = next((gpu for gpu in ("h200", "h100", "a100") if cuda and gpu in device.lower()), options.device)
    print(f"measured on {options.device} ({device}), {name}, PyTorch {torch.__version__}", flush=True)
    bench = Bench(name, options)
    for _ in range(2):  # the first time pays for loading kernels
        bench.capacity.clear()
        bench.steps(options.seed, 0)
    since = time.monotonic()
    fitted = bench.steps(options.seed + 1, FIT_LOAD)
    need = (time.monotonic() - since) * len(SCHEDULERS) * len(LOADS)
    checked = checks(bench, options.device)
    bench.shrink((until - time.monotonic()) / need)
    models = bench.models(fitted, gpu if name == "llama-3.1-8b" and cuda else "")
    words = {key: value for key, value in vars(options).items() if not isinstance(value, Path)}
    about = {"options": words, "device": device, "gpu": gpu, "measured on": options.device, "model": name,
             "torch": torch.__version__, "config": asdict(bench.config), "token_scale": bench.scale,
             "programs": bench.programs, "capacity": bench.capacity, "checked": checked,
             "fit steps": len(fitted), "linear": coefficients(fitted)}  # fmt: skip
    return about | versus(bench, models, options.seed + 2)


def checks(bench: Bench, device: str) -> list[dict[str, Any]]:
    """The check of the tiny model, and the longest calls of the run before against the model measured."""
    try:
        found = check(device)
    except AssertionError as error:
        found = [Verdict(str(error), 0, 0, wrong=1)]
    own = Verdict("the model measured", 0, 0)
    calls = sorted(bench.done, key=lambda served: len(served.tokens))[-AUDITED:]
    compare(bench.model, calls, own, 1e-3 if device == "cpu" else 0.25)  # bfloat16 has 8 bits
    for name, rows in (("tiny", found), ("measured", [own])):
        tokens, wrong = sum(row.tokens for row in rows), sum(row.wrong for row in rows)
        bad = [row.name for row in rows if row.wrong]
        print(f"CHECK of the {name} model: {tokens} tokens, {wrong} wrong{bad or ''}, "
              f"log-probabilities within {max(row.delta for row in rows):.1e}", flush=True)  # fmt: skip
    return [asdict(verdict) for verdict in (*found, own)]


def calibration(result: dict[str, Any]) -> Calibration:
    """The one-line fit, and how far it was off on what it has not seen, as runs can name it."""
    metrics = {"TTFT": "TTFT", "TPOT": "TPOT", "E2E": "latency mean"}
    errors, config, cells = result["errors"]["linear"], result["config"], len(result["cells"])
    model, gpu = result["model"], result["gpu"]
    held_out = [HeldOut(name, "error of means", errors[key]["mean"], cells, "benchmarks/paged.py")
                for name, key in metrics.items()]  # fmt: skip
    return Calibration(
        f"paged-{model}-{gpu}", "linear", model, gpu, coefficients=result["linear"], held_out=tuple(held_out),
        kv_blocks=config["kv_blocks"], max_model_len=config["max_model_len"],
        source={key: result[key] for key in ("options", "device", "measured on", "torch", "fit steps")},
    )  # fmt: skip


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    default = "cuda" if torch.cuda.is_available() else "cpu"
    parser.add_argument("--device", choices=("cpu", "cuda"), default=default)
    parser.add_argument("--model", choices=sorted(SHAPES), help="8B on a GPU, small on a CPU")
    parser.add_argument("--quick", action="store_true", help="half the programs")
    parser.add_argument("--programs", type=int, help="per run, of each workload")
    parser.add_argument("--seed", type=int, default=1, help="warms up; the next one fits, two more compare")
    parser.add_argument("--repeat", type=int, default=1, help="run each step so often, take the median")
    parser.add_argument("--minutes", type=float, default=8.0, help="serve fewer programs rather than longer")
    parser.add_argument("--threads", type=int, default=1, help="of PyTorch on a CPU")
    parser.add_argument("--out", type=Path, help="JSON with every number")
    parser.add_argument("--calibration", type=Path, help="the linear fit, for latency.calibration=FILE")
    return parser.parse_args()


if __name__ == "__main__":
    main()

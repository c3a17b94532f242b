"""What our class adds to the CPU time of vLLM's own scheduler: 256 calls run, 1 000 wait, on one core.

    python benchmarks/vllm_scheduler.py [--rounds N] [--kept BLOCKS] [--json]

About 4 minutes; needs the vLLM environment. ``--kept 4000``: our class once more with each policy, keeping
what calls leave for their programs' next calls, up to so many blocks.

1 256 programs of 12 calls in a closed loop (a finished call is followed at once by its program's next, a
finished program by a new one), prompts of 64 to 320 new tokens on top of the program's context, replies of
32 to 600 tokens; 256 sequences, 2 048 tokens a step, 16 384 blocks of 16 tokens, prefix cache on. No model:
every step takes 20 ms of the schedulers' clock, but the clock is read as in a server. vLLM's own scheduler
runs the same load with ``--scheduling-policy priority`` and ``fcfs``, ours with fcfs, mlfq, plas and atlas at
their defaults. With ``--kept``, a line at the end says how many blocks were kept: the mean over turns.

A policy takes other steps than vLLM's: it displaces calls, which are admitted again later. So each has a
*control*: vLLM's own scheduler made to take the very same steps (``vllm_replay.py``). Ours over its control
is what our class costs; the control over vLLM's own, what the policy's steps cost in vLLM's code.

All run in one process, in turns of 5 steps, the order shuffled, a control one turn behind; 8 turns are a
round. A round's figure is CPU time (thread time) of ``schedule`` + ``update_from_output`` per step; its
ratios are to others of the same round, and ``own``: what our class adds to the time inside vLLM's own methods
that it calls. Printed: medians over rounds, and the 95 % interval of the median (order statistics). ``with
arrivals`` adds ``add_request``. All classes read the clock at four of vLLM's methods, which ``own`` needs,
and ours record their decisions, which the controls need.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from math import comb
from pathlib import Path
from random import Random
from statistics import fmean, median
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.vllm_replay import Control, Kind, Recording, Watch  # noqa: E402
from vocabulary import BLOCK, EngineConfig, on_grid  # noqa: E402

RUNNING, WAITING, CALLS = 256, 1000, 12
CONFIG = EngineConfig(16_384, RUNNING, 2048, 16_384, record_decisions=False)
STEP_S = on_grid(0.02)
TURN = 5
BASES = ("vllm priority", "vllm fcfs")
OURS = ("fcfs", "mlfq", "plas", "atlas")
COUNTS = ("steps", "calls", "displaced", "evicted", "step_ns", "arrival_ns", "vllm_ns")


class Figures(NamedTuple):
    """us of CPU per step, the same with arrivals, what our class adds (fraction); and per step: calls, those
    that the policy displaced, those that vLLM evicted for want of blocks."""

    steps: float
    with_arrivals: float
    own: float
    calls: float
    displaced: float
    evicted: float


class Load:
    """The closed loop, and one scheduler that serves it.

    ``make``: builds it for a clock (seconds). ``watch``: writes its steps down, or compares them.
    """

    def __init__(
        self, kind: Kind, make: Callable[[Callable[[], float]], Any], parts: Any, watch: Watch
    ) -> None:
        self.name, self.parts, self.watch = kind.name, parts, watch
        self.rng = Random(1)
        self.kept: list[int] = []
        self.time = 0.0
        self.scheduler = make(self.clock)
        self.programs = 0
        self.context: dict[str, tuple[str, int, list[int], int]] = {}
        self.spent = dict.fromkeys(COUNTS, 0)
        for _ in range(RUNNING + WAITING):
            self.start_program()

    def clock(self) -> float:
        """Virtual seconds, at the price of a real clock."""
        on_grid(time.monotonic())
        return self.time

    def start_program(self) -> None:
        """Another program's first call; those of the start are spread over their programs' lengths."""
        self.programs += 1
        first = self.rng.randrange(CALLS) if self.programs <= RUNNING + WAITING else 0
        self.call(f"p{self.programs}", first, [])

    def call(self, program: str, index: int, prompt: list[int]) -> None:
        """The program's next call: its context and 64 to 320 new tokens."""
        prompt = prompt + [self.rng.randrange(1 << 20) for _ in range(self.rng.randint(64, 320))]
        output = self.rng.randint(32, 600)
        name = f"{program}-{index}"
        request = self.parts.request(name, prompt, output, program)
        self.context[name] = (program, index, prompt, output)
        began = time.thread_time_ns()
        self.scheduler.add_request(request)
        self.spent["arrival_ns"] += time.thread_time_ns() - began
        self.watch.arrived(self.scheduler)

    def step(self) -> None:
        """One engine step and the calls that follow from it."""
        inside = self.parts.inside.ns
        began = time.thread_time_ns()
        output = self.scheduler.schedule()
        between = time.thread_time_ns()
        self.time += STEP_S
        displaced = self.watch.scheduled(self.scheduler, output)
        result = self.parts.result(self.scheduler, output)
        again = time.thread_time_ns()
        self.scheduler.update_from_output(output, result)
        self.spent["step_ns"] += time.thread_time_ns() - again + between - began
        self.spent["vllm_ns"] += self.parts.inside.ns - inside
        self.watch.updated(self.scheduler)
        self.count(output, displaced)
        for name in [n for n in output.num_scheduled_tokens if n not in self.scheduler.requests]:
            self.follow(name)

    def count(self, output: Any, displaced: int) -> None:
        """What a step did."""
        evicted = len(output.preempted_req_ids or ()) - displaced
        found = {"steps": 1, "calls": len(output.num_scheduled_tokens)}
        for what, number in {**found, "displaced": displaced, "evicted": evicted}.items():
            self.spent[what] += number

    def follow(self, name: str) -> None:
        """A call is over: its program's next, or another program."""
        program, index, prompt, length = self.context.pop(name)
        if index + 1 < CALLS:
            self.call(program, index + 1, [*prompt, *range(length)])
        else:
            self.start_program()

    def run(self, steps: int) -> None:
        """Some steps."""
        for _ in range(steps):
            self.step()
        if keeper := getattr(self.scheduler, "keeper", None):
            self.kept.append(keeper.pinned_blocks())

    def take(self) -> Figures:
        """What was spent since the last call of this."""
        s, self.spent = self.spent, dict.fromkeys(self.spent, 0)
        in_step = s["step_ns"] / s["steps"] / 1e3
        arrivals = s["arrival_ns"] / s["steps"] / 1e3
        own = s["step_ns"] / s["vllm_ns"] - 1.0
        counts = (s[what] / s["steps"] for what in ("calls", "displaced", "evicted"))
        return Figures(in_step, in_step + arrivals, own, *counts)


def kinds(kept: int) -> list[Kind]:
    """vLLM's own; each policy and, after it, its control; each once more if blocks are to be ``kept``."""
    found = [Kind(base, order=base.split()[1]) for base in BASES]
    for policy in OURS:
        recording = Recording()
        found.append(Kind(f"ours {policy}", policy, records=recording))
        found.append(Kind(f"control {policy}", plays=recording))
    return found + [Kind(f"ours {policy}, kept", policy, kept=kept) for policy in OURS if kept]


def loads(kept: int) -> list[Load]:
    """One of each kind. Imports vLLM."""
    from benchmarks.vllm_parts import Parts

    parts = Parts()
    return [Load(kind, partial(parts.build, kind, CONFIG), parts, kind.watch()) for kind in kinds(kept)]


def interval(values: Sequence[float]) -> tuple[float, float]:
    """The order statistics that hold the median with 95 %, whatever the distribution."""
    ordered, n = sorted(values), len(values)
    low, below = 0, 1.0
    while low < n // 2 and below / 2**n <= 0.025:
        low += 1
        below += comb(n, low)
    low = max(low - 1, 0)
    return ordered[low], ordered[n - 1 - low]


def measured(rounds: int, turns: int, warm: int, kept: int) -> tuple[dict[str, list[Figures]], float]:
    """Figures by scheduler and round; blocks kept in the mean over turns."""
    made = loads(kept)
    for load in made:
        load.run(warm if isinstance(load.watch, Control) else warm + TURN)
    for load in made:
        load.take()
        load.kept.clear()
    gc.collect()
    gc.freeze()  # as vLLM's engine core does
    rng, found = Random(2), {load.name: [] for load in made}
    for _ in range(rounds):
        for load in (one for _ in range(turns) for one in rng.sample(made, len(made))):
            load.run(TURN)
        for load in made:
            found[load.name].append(load.take())
    blocks = [number for load in made for number in load.kept]
    return found, fmean(blocks) if blocks else 0.0


def report(found: dict[str, list[Figures]]) -> list[dict[str, Any]]:
    """A row per scheduler: CPU per step, what the steps did, and ratios."""
    rows = []
    for name, figures in found.items():
        row: dict[str, Any] = {"scheduler": name, "us_per_step": median(f.steps for f in figures)}
        row |= {what: fmean(getattr(f, what) for f in figures) for what in ("calls", "displaced", "evicted")}
        if name.startswith("ours"):
            row["own code over the vLLM code it calls"] = spread([1.0 + f.own for f in figures])
        if (control := name.replace("ours", "control")) in found and control != name:
            row["the class: over its control"] = ratio(figures, found[control], 0)
        for base in BASES if name not in BASES else ():
            row[f"over {base}"] = ratio(figures, found[base], 0)
            row[f"over {base}, with arrivals"] = ratio(figures, found[base], 1)
        rows.append(row)
    return rows


def ratio(mine: Sequence[Figures], theirs: Sequence[Figures], at: int) -> tuple[float, float, float]:
    """Of the times in one field, round by round: median and interval."""
    return spread([one[at] / other[at] for one, other in zip(mine, theirs, strict=True)])


def spread(values: Sequence[float]) -> tuple[float, float, float]:
    """Median and interval."""
    return (median(values), *interval(values))


def show(rows: list[dict[str, Any]]) -> None:
    """As a table."""
    print(f"{'':16}{'us/step':>9}{'calls':>7}{'displ.':>8}{'evicted':>8}   ratios: median [95 % interval]")
    for row in rows:
        counts = f"{row['calls']:7.1f}{row['displaced']:8.2f}{row['evicted']:8.2f}"
        print(f"{row['scheduler']:16}{row['us_per_step']:9.0f}{counts}")
        for key, value in row.items():
            if isinstance(value, tuple):
                print(f"{'':34} {value[0]:.3f} [{value[1]:.3f}, {value[2]:.3f}]  {key}")


def main() -> None:
    """Measure here if this Python has vLLM, else under the one that has."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=41)
    parser.add_argument("--turns", type=int, default=8, help=f"of {TURN} steps, per scheduler and round")
    parser.add_argument("--warm", type=int, default=600, help="steps before the first round")
    parser.add_argument("--kept", type=int, default=0, help="blocks that retention keeps; 0: none")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    try:
        import vllm  # noqa: F401
    except ImportError:
        from systems.engines.vllm_virtual import vllm_python

        python = str(vllm_python())
        os.environ.update(OMP_NUM_THREADS="1", VLLM_LOGGING_LEVEL="ERROR", VLLM_NO_USAGE_STATS="1")
        os.execv(python, [python, *sys.argv])
    found, kept = measured(arguments.rounds, arguments.turns, arguments.warm, arguments.kept)
    rows = report(found)
    if arguments.json:
        print(json.dumps({"block": BLOCK, "kept_blocks": kept, "rows": rows}, indent=1))
        return
    show(rows)
    if arguments.kept:
        print(f"kept: {kept:.0f} blocks in the mean, at most {arguments.kept} and a call's")


if __name__ == "__main__":
    main()

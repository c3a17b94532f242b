"""Saturation rates of an experiment's workloads, as lines for its TOML file.

    python scripts/saturation.py autellix:fig12 --model llama-3.1-8b --horizon 3600 --seeds 2 --out results

Programs arrive for an hour, so that the slowest of them have time to leave again.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from bench.config import RunConfig
from bench.curves.runner import Cells
from bench.curves.saturation import saturation
from bench.curves.spec import parse
from bench.reproduce import load


def main() -> None:
    """Print a line per workload and system."""
    options = _options()
    curves = parse(*load(options.experiment))
    run = Cells(options.workers, None)
    for work in curves.workloads:
        if options.workload and work.name not in options.workload:
            continue
        base = work.saturation.get(options.model, 0.5)
        for system in options.system or [curves.reference]:
            config = RunConfig(
                system, work.workload, base, model=options.model, gpu=options.gpu, out=options.out,
                horizon=options.horizon,
            )  # fmt: skip
            guess = base * work.slow.get(system, 1.0)
            found = saturation(config, guess, range(1, options.seeds + 1), run, options.tolerance)
            print(
                f"{work.name:10} {system:10} {options.model}/{options.gpu}: [{found.low:g}, {found.high:g}) "
                f"middle {found.middle:.4g}, {options.seeds} seeds, horizon {options.horizon:g} s",
                flush=True,
            )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("experiment")
    parser.add_argument("--model", default="llama-3.1-8b")
    parser.add_argument("--gpu", default="a100")
    parser.add_argument("--system", action="append")
    parser.add_argument("--workload", action="append")
    parser.add_argument("--horizon", type=float, default=3600.0)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--tolerance", type=float, default=1.03)
    parser.add_argument("--workers", type=int)
    parser.add_argument("--out", type=Path, default=Path("results"))
    return parser.parse_args()


if __name__ == "__main__":
    main()

"""Groups of results made by hand: what ``bench.compare`` reads, without running anything."""

import json
from pathlib import Path

from bench.comparing import Cell, Group, group_id
from bench.stats import Estimate
from bench.tables import FORMAT

LATENCY = "program.s_per_token.mean_of_ratios"
TOKENS = "program.s_per_token.ratio_of_means"
RATE = "throughput.output_tokens_per_s"


def cell(seed, metrics, folder=None, trend="steady", result_hash=None, **identity):
    """A finished cell; ``metrics``: name -> value (None: not there)."""
    known = {
        "format": FORMAT, "code": "c0de", "workload": "wl", "programs": f"p{seed}", "n": 20, "seed": seed,
        "arrivals": {"poisson": 1.0}, "system": "s", "engine": "sim", "latency": "l",
        "engine_config": {"max_num_seqs": 256},
    } | identity  # fmt: skip
    made = {"system.finished_share": 1.0, **metrics}
    summary = {
        "format": FORMAT, "system": str(known["system"]), "workload": "chatbot:paper",
        "load": "20 programs, Poisson 1/s", "badge": "SIMULATED (engine sim)", "seed": seed,
        "trend": {"verdict": trend}, "result_hash": result_hash or f"{made} {seed} {known['system']}",
        "metrics": {
            k: Estimate(v, note="" if v is not None else "n too small (20 < 130)")._asdict()
            for k, v in made.items()
        },
    }  # fmt: skip
    manifest = {"identity": known, "system": {"scheduler": "fcfs"}, "workload": {"parameters": {}}}
    where = folder or Path(f"{group_id(known)}-{seed}")
    return Cell(where, summary, manifest)


def group(cells, where="out", left_out=()):
    """The group of some cells."""
    return Group(group_id(cells[0].identity), Path(where), {c.summary["seed"]: c for c in cells}, left_out)


def series(values, first=1, others=(), **identity):
    """One cell per value of LATENCY, seeds from ``first`` on; TOKENS and RATE follow it."""
    return group(
        [
            cell(
                first + i,
                {LATENCY: v, TOKENS: v, RATE: None if v is None else 1 / v, **dict(others)},
                **identity,
            )
            for i, v in enumerate(values)
        ]
    )


def write(cells, out):
    """Cells as files, as ``bench run`` leaves them."""
    for one in cells:
        folder = out / one.folder.name
        folder.mkdir(parents=True)
        (folder / "manifest.json").write_text(json.dumps(one.manifest))
        (folder / "summary.json").write_text(json.dumps(one.summary))

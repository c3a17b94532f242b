"""The latency tables that ship with the package, by model and GPU."""

from __future__ import annotations

import hashlib
import json
from difflib import get_close_matches
from pathlib import Path

from systems.latency.model import TableLatency

_FOLDER = Path(__file__).parent / "tables"


class UnknownTable(LookupError):
    """No table for this model and GPU; the message names the nearest that exist."""


def tables() -> list[tuple[str, str]]:
    """(model, gpu) of every table, sorted. One file ``tables/MODEL_GPU.json`` each."""
    names = sorted(path.stem.rpartition("_") for path in _FOLDER.glob("*.json"))
    return [(model, gpu) for model, _, gpu in names]


def models() -> list[str]:
    """Models that have a table on some GPU."""
    return sorted({model for model, _ in tables()})


def gpus() -> list[str]:
    """GPUs that have a table for some model."""
    return sorted({gpu for _, gpu in tables()})


def load_table(model: str, gpu: str) -> TableLatency:
    """The table of ``model`` on ``gpu`` ("llama-3.1-8b", "a100"). Raises UnknownTable."""
    if (model, gpu) not in tables():
        raise UnknownTable(_no_table(model, gpu))
    return read_table(_FOLDER / f"{model}_{gpu}.json")


def read_table(path: Path) -> TableLatency:
    """The table in a JSON file. Raises OSError, or ValueError naming file and field."""
    data = path.read_bytes()
    try:
        return TableLatency(json.loads(data), hashlib.sha256(data).hexdigest())
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def _no_table(model: str, gpu: str) -> str:
    text = f"no latency table for model {model!r} on GPU {gpu!r}"
    for kind, name, known in (("model", model, models()), ("GPU", gpu, gpus())):
        if name not in known:
            near = get_close_matches(name, known, n=3, cutoff=0.4) or known
            return f"{text}: unknown {kind}, nearest: {', '.join(near)}"
    return f"{text}; there are: {', '.join(f'{m} on {g}' for m, g in tables())}"

"""Step times by model and GPU: a measured table where there is one, else a roofline."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

from systems.latency.beside import table_latency
from systems.latency.calibration import CalibratedModel, Calibration, LinearModel
from systems.latency.facts import (
    UnknownTable,
    gpu_facts,
    model_and_tp,
    model_facts,
    nearest,
    same_model,
    split_name,
)
from systems.latency.facts import gpu as gpu_of
from systems.latency.model import TableLatency
from systems.latency.roofline import RooflineLatency
from systems.latency.scaled import ScaledModel, ServedModel

__all__ = [
    "UnknownTable",
    "gpus",
    "latency_for",
    "load_table",
    "models",
    "read_table",
    "table_file",
    "tables",
]

_FOLDER = Path(__file__).parent / "tables"


def table_file(model: str, gpu: str, tp: int) -> str:
    """Name of a table's file: ``llama-3.1-8b_a100.json``, ``llama-3.1-70b_tp4_a100.json``."""
    return "_".join([model, *([f"tp{tp}"] if tp > 1 else []), gpu]) + ".json"


def tables() -> list[tuple[str, str]]:
    """(model, gpu) of every table, sorted; ":tpN" follows the model where N is not its default."""
    return sorted((_spell(model, tp), gpu) for model, tp, gpu in _measured())


def models() -> list[str]:
    """Models that can be served, measured or not."""
    return sorted(model_facts())


def gpus() -> list[str]:
    """GPUs that there are numbers for."""
    return sorted(gpu_facts())


def latency_for(
    model: str, gpu: str, scales: Mapping[str, float] | None = None, calibration: Calibration | None = None
) -> ServedModel:
    """Step times of ``model`` ("llama-3.1-70b" or "llama-3.1-70b:tp4") on ``gpu`` ("a100").

    ``scales``: factors on parts of a step, by the names of ``scaled.SCALES``, after ``calibration``.
    Raises UnknownTable for an unknown name, ValueError if the model cannot be split
    over so many GPUs or does not fit, or if a factor is none.
    """
    base = _linear(calibration, model, gpu) or _uncalibrated(model, gpu)
    if calibration is not None and calibration.kind == "scaled":
        base = CalibratedModel(base, calibration)
    return ScaledModel(base, scales) if scales else base


def _linear(calibration: Calibration | None, model: str, gpu: str) -> ServedModel | None:
    """A calibration that needs no table. Raises ValueError if it is of another model or GPU."""
    if calibration is None or calibration.kind != "linear":
        return None
    if gpu != calibration.gpu or not same_model(model, calibration.model):
        raise ValueError(
            f"calibration {calibration.name} is of {calibration.model} on {calibration.gpu}: "
            f"give --model {calibration.model} --gpu {calibration.gpu}"
        )
    return LinearModel(calibration)


def _uncalibrated(model: str, gpu: str) -> ServedModel:
    facts, tp = model_and_tp(model)
    board = gpu_of(gpu)
    measured = (facts.name, tp, gpu) in _measured()
    return load_table(model, gpu) if measured else RooflineLatency(facts, board, tp)


def load_table(model: str, gpu: str) -> TableLatency:
    """The table of ``model`` on ``gpu``, named as in ``latency_for``. Raises UnknownTable."""
    name, tp = split_name(model)
    if tp is None and name in model_facts():
        tp = model_facts()[name].tp
    if tp is None or (name, tp, gpu) not in _measured():
        raise UnknownTable(_no_table(model, gpu))
    return read_table(_FOLDER / table_file(name, gpu, tp))


def read_table(path: Path) -> TableLatency:
    """The table in a JSON file. Raises OSError, or ValueError naming file and field."""
    data = path.read_bytes()
    try:
        return table_latency(json.loads(data), hashlib.sha256(data).hexdigest())
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def _measured() -> set[tuple[str, int, str]]:
    """(model, tp, gpu) of every file in ``tables/``."""
    found = set()
    for path in _FOLDER.glob("*.json"):
        model, *tp, gpu = path.stem.split("_")
        found.add((model, int(tp[0].removeprefix("tp")) if tp else 1, gpu))
    return found


def _spell(model: str, tp: int) -> str:
    return model if tp == model_facts()[model].tp else f"{model}:tp{tp}"


def _no_table(model: str, gpu: str) -> str:
    text = f"no latency table for model {model!r} on GPU {gpu!r}"
    name, _ = split_name(model)
    for kind, word, known in (("model", name, models()), ("GPU", gpu, gpus())):
        if word not in known:
            return f"{text}: unknown {kind}, {nearest(word, known)}"
    return f"{text}; there are: {', '.join(f'{m} on {g}' for m, g in tables())}"

"""What can be simulated, by model and by GPU, and how each was validated: the rows of ``bench ls``."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from systems.latency.calibration import Calibration, calibrations, load_calibration
from systems.latency.catalog import gpus, load_table, models, tables
from systems.latency.facts import GpuFacts, ModelFacts, gpu_facts, kv_blocks, model_and_tp, same_model
from systems.latency.model import band
from systems.latency.roofline import roofline_uncertainty
from systems.latency.validation import NOTHING, Validation, validations

Pair = tuple[str, str]
"""(model as listed, GPU)."""


def model_rows() -> list[dict[str, str]]:
    """A row per model and size: GPUs with measured kernels, those with a roofline, and what was validated."""
    known = _known()
    served = list(_served())
    rows = []
    for name in sorted({model for model, _, _ in served}):
        found = [(gpu, measured) for model, gpu, measured in served if model == name]
        checked = [(gpu, known[name, gpu] or _unvalidated(name, gpu, measured)) for gpu, measured in found]
        rows.append(
            {
                "name": name,
                "GPUs": str(model_and_tp(name)[1]),
                "measured kernels": ", ".join(gpu for gpu, measured in found if measured),
                "roofline": _estimated(name, [gpu for gpu, measured in found if not measured]),
                "validated": _by_words(checked),
            }
        )
    return rows


def gpu_rows() -> list[dict[str, str]]:
    """A row per GPU: models with measured kernels on it, those with a roofline, and what was validated."""
    known = _known()
    rows = []
    for name in gpus():
        found = [(model, measured) for model, gpu, measured in _served() if gpu == name]
        rest = "kernels only" if any(measured for model, measured in found if not known[model, name]) else ""
        checked = [(model, known[model, name] or rest or "roofline only") for model, _ in found]
        rows.append(
            {
                "name": name,
                "measured kernels": _sizes(model for model, measured in found if measured),
                "roofline": _sizes(model for model, measured in found if not measured),
                "validated": _by_words(checked, rest),
            }
        )
    return rows


def _sizes(names: Iterable[str]) -> str:
    """Models with their other sizes behind them: "llama-3.1-70b (also :tp8), llama-3.1-8b"."""
    sizes: defaultdict[str, list[str]] = defaultdict(list)
    for name in names:
        model, colon, size = name.partition(":")
        sizes[model] += [colon + size] * bool(colon)
    return ", ".join(f"{model} (also {', '.join(more)})" if more else model for model, more in sizes.items())


def _estimated(model: str, names: list[str]) -> str:
    """The GPUs with a roofline, and the range their kernels should be in."""
    if not names:
        return ""
    return f"{', '.join(names)} ({band(roofline_uncertainty(model_and_tp(model)[0]))})"


def _served() -> Iterator[tuple[str, str, bool]]:
    """(model, GPU, measured?) of all tables, then of every model at its own size on every GPU it fits."""
    measured = tables()
    yield from ((model, gpu, True) for model, gpu in measured)
    for name in models():
        facts, tp = model_and_tp(name)
        for gpu, board in gpu_facts().items():
            if (name, gpu) not in measured and _fits(facts, board, tp):
                yield name, gpu, False


def _fits(facts: ModelFacts, board: GpuFacts, tp: int) -> bool:
    try:
        return kv_blocks(facts, board, tp) > 0
    except ValueError:
        return False


def _unvalidated(model: str, gpu: str, measured: bool) -> str:
    """What is claimed of absolute times where nothing real was compared."""
    if not measured:
        return "roofline only"
    return f"kernels only, {band(load_table(model, gpu).uncertainty)}"


def _by_words(checked: Iterable[tuple[str, str]], rest: str = "") -> str:
    """The same words once, behind those they hold of: "a100, h100: WORDS; h200: OTHER WORDS".

    No names where the words hold of all, or are ``rest``: those come last.
    """
    grouped: defaultdict[str, list[str]] = defaultdict(list)
    for name, words in checked:
        grouped[words].append(name)
    if len(grouped) == 1:
        return next(iter(grouped))
    named = [f"{', '.join(names)}: {words}" for words, names in grouped.items() if words != rest]
    return "; ".join([*named, f"the others: {rest}"] if rest in grouped else named)


def _known() -> dict[Pair, str]:
    """``_validated`` of all that is served."""
    fits = [load_calibration(name) for name in calibrations()]
    return {(model, gpu): _validated(model, gpu, fits) for model, gpu, _ in _served()}


def _validated(model: str, gpu: str, shipped: Sequence[Calibration]) -> str:
    """What is known of a model and GPU, in a few words, shipped calibrations included; "" if nothing."""
    rows = validations(model, gpu)
    words = [_short(list(same), n, fitted) for (n, fitted, _), same in groupby(rows, _comparison)]
    fits = (fit for fit in shipped if fit.gpu == gpu and same_model(fit.model, model))
    return "; ".join([*words, *(f"calibration {fit.name}" for fit in fits)])


def _comparison(row: Validation) -> tuple[int, str, str]:
    return row.n, row.fitted, row.against


def _short(rows: Sequence[Validation], n: int, fitted: str) -> str:
    """ "E2E 0.9%, TTFT 4.0% median of 300 (nothing fitted)"; a mean where no statistic is named."""
    errors = [f"{row.metric} {row.error:.1%}{' median' * ('median' in row.statistic)}" for row in rows]
    return f"{', '.join(errors)} of {n} ({'nothing fitted' if fitted == NOTHING else fitted})"

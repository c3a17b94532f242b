"""The fidelity card in words (plain data of ``bench.card``), and as the last block of a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.markup import escape
from rich.table import Table

from reports.numbers import number
from reports.varied import spread

Card = Mapping[str, Any]

MEASURED = "vllm"
"""The engine of results in which nothing is simulated: there is nothing to vary."""
WIDTH = 96
"""Characters a line of the compact card may take behind its label."""
TWO_LINES = 2 * WIDTH - 16
"""What two lines take, with some room lost where a word is carried over."""
ANY = "bench card RESULT --sensitivity"
"""The command that computes a sensitivity."""
NOT_VALIDATED = "not validated end to end on this model and GPU"
RUN_VERDICT = "one system alone gives none; bench compare BASE NEW --sensitivity says whether one survives"


def rows(card: Card) -> list[tuple[str, str]]:
    """The whole card but for its sensitivity: labels and texts."""
    found = [
        ("engine", _engine(card)),
        ("step times", _table(card)),
        ("calibration", calibration(card)),
        ("known error", "; ".join(errors(card))),
    ]
    if card["varied"]:
        found.append(("varied here", _varied(card)))
    return [*found, ("fallbacks", "; ".join(card["fallbacks"]) or "none")]


def _engine(card: Card) -> str:
    engine = card["engine"]
    served = f"; {engine['replicas']} x {card['model']} on {card['gpu']}" if card["model"] else ""
    blocks = f", {engine['kv_blocks']:,} KV blocks each" if engine["kv_blocks"] else ""
    return f"{engine['name'] or 'not recorded'} ({engine['kind']}){served}{blocks}"


def _table(card: Card) -> str:
    table = card["table"]
    made = ", ".join(
        text
        for text in (
            f"{table.get('package', '')} {table.get('version', '')}".strip(),
            table.get("kernels", ""),
            f"exported {table['exported']}" if table.get("exported") else "",
        )
        if text
    )
    smallest = table.get("smallest_step_ms")
    return "; ".join(
        text
        for text in (
            f"{table['kind']}" + (f" ({made})" if made else ""),
            f"digest {table['digest']}" if table["digest"] else "",
            f"smallest step {number(smallest)} ms" if smallest is not None else "",
            _overhead(card),
        )
        if text
    )


def _overhead(card: Card) -> str:
    """Host time per step: a kernel table has none of its own."""
    fit = card["calibration"]
    if not card["band"] or (fit and fit["kind"] == "linear"):
        return ""
    extra = f"{fit['extra_ms']:.3g} ms per step" if fit else "none"
    return f"host time fitted on top: {extra}"


def calibration(card: Card) -> str:
    """Its name, numbers and what they were fitted on, or what is to be believed without one."""
    fit, band = card["calibration"], card["band"]
    if fit is None:
        if band is None:
            return "none"
        low, high = band
        plain = abs((1.0 - low) - (high - 1.0)) < 1e-9
        if plain:
            return f"none: absolute times +-{100 * (high - 1.0):.0f} %"
        return f"none: absolute times x{low:.2f}..x{high:.2f}, and +-15 % on top"
    if fit["kind"] == "linear":
        terms = ", ".join(f"{name} {value:.3g}" for name, value in (fit["coefficients"] or {}).items())
        numbers = f"ms per unit: {terms}"
    else:
        numbers = f"scale {fit['scale']:.4g}, {fit['extra_ms']:+.3g} ms per step"
    on = ", ".join(f"{name} {value}" for name, value in fit["fitted_on"].items())
    return f"{fit['name']}: {numbers}" + (
        f"; fitted on {on}" if on else "; what it was fitted on is not recorded"
    )


def errors(card: Card, rows: str = "rows") -> list[str]:
    """What is known of how far off it is: each number with where it comes from (``rows``), or ``short``."""
    found = card["error"]
    if found["source"] == "calibration":
        return [f"held out: {row}" for row in found[rows]]
    if found["source"] == "none":
        return ["the calibration has no held-out error" if card["calibration"] else NOT_VALIDATED]
    told = list(found[rows])
    if found["source"] == "validation" and card["varied"]:
        told.append("(of the table as it is, not as it is varied here)")
    return told


def _varied(card: Card) -> str:
    return ", ".join(f"{name} x {factor:g}" for name, factor in card["varied"].items())


def short(
    card: Card, sensitivity: Mapping[str, Any] | None, command: str, verdict: str
) -> list[tuple[str, str]]:
    """The card in a line each: at most WIDTH characters where what is in it allows."""
    table = card["table"]
    made = " ".join(w for w in (table.get("package", ""), table.get("version", "")) if w) or table["kind"]
    engine = card["engine"]
    times = [
        f"{engine['name'] or 'not recorded'} ({engine['kind'].partition(':')[0]})",
        *([f"{card['model']} on {card['gpu']}"] if card["model"] else []),
    ]
    times.append(f"table {made}, digest {table['digest']}" if table["digest"] else made)
    times += [f"varied: {_varied(card)}"] if card["varied"] else []
    times += [f"FALLBACK {text.partition(' (')[0]}" for text in card["fallbacks"]]
    if engine["name"] == MEASURED:
        return [("card", fitting(times)), ("known error", fitting(errors(card, "short"), TWO_LINES))]
    told = fitting(spread(sensitivity)) if sensitivity else f"not computed: {command}"
    return [
        ("card", fitting(times)),
        ("calibration", _cut(calibration(card))),
        ("known error", fitting(errors(card, "short"), TWO_LINES)),
        ("sensitivity", told),
        ("verdict", verdict),
    ]


def fitting(parts: Sequence[str], width: int = WIDTH) -> str:
    """As many parts as a line holds, at least one, and how many more there are."""
    for kept in range(len(parts), 1, -1):
        more = len(parts) - kept
        text = "; ".join([*parts[:kept], *([f"{more} more (bench card)"] if more else [])])
        if len(text) <= width:
            return text
    more_of = f"; {len(parts) - 1} more (bench card)" if len(parts) > 1 else ""
    return _cut(parts[0], width - len(more_of)) + more_of


def _cut(text: str, width: int = WIDTH) -> str:
    mark = "... (bench card)"
    return text if len(text) <= width else text[: width - len(mark)].rstrip() + mark


def compact(pairs: Sequence[tuple[str, str]]) -> Table:
    """Labels and texts as the last block of a page."""
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for label, text in pairs:
        table.add_row(label, escape(text))
    return table


def of_summary(summary: Mapping[str, Any]) -> Table | None:
    """The compact card of a run's page; None for a summary without one."""
    if not summary.get("card"):
        return None
    command = summary.get("vary") or ANY
    if len(command) > WIDTH - len("not computed: "):
        command = ANY  # the footer has the result's folder in a line of its own
    return compact(short(summary["card"], summary.get("sensitivity"), command, RUN_VERDICT))

"""The fidelity suite: runs its parts, keeps what they found, and writes docs/fidelity.md from that."""

from __future__ import annotations

import json
import pkgutil
import time
from collections.abc import Sequence
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import Any

from bench.errors import MissingError, unknown
from bench.fidelity import parts as folder
from bench.fidelity.page import page
from bench.fidelity.part import Options, Outcome, Part, Say
from bench.files import plain, write_atomic
from bench.manifest import git_state, hardware, versions
from systems.latency.validation import FILE as VALIDATIONS
from systems.latency.validation import write as write_validations

ROOT = Path(__file__).resolve().parents[2]
DOC = ROOT / "docs" / "fidelity.md"
KEPT = ROOT / "docs" / "fidelity"


def parts() -> dict[str, Part]:
    """Every part, by its name, in the page's order."""
    found = [import_module(f"{folder.__name__}.{m.name}") for m in pkgutil.iter_modules(folder.__path__)]
    named = {module.PART.name: module.PART for module in found if hasattr(module, "PART")}
    return dict(sorted(named.items()))


def choose(names: Sequence[str]) -> list[Part]:
    """Parts by name or by first letter; all of them if none is named. Raises UsageError."""
    there = parts()
    chosen = []
    for name in names:
        fits = [part for key, part in there.items() if name in (key, key.partition("-")[0])]
        if not fits:
            raise unknown("part", name, there)
        chosen += fits
    return chosen or list(there.values())


def run(part: Part, options: Options, say: Say) -> dict[str, Any]:
    """Run one part; its record, as it is kept. Raises MissingError if it cannot run here."""
    if why := part.missing(options):
        raise MissingError(f"part {part.name}: {why}")
    began = time.monotonic()
    outcome = part.run(options, say)
    return record(part, outcome, options, time.monotonic() - began)


def record(part: Part, outcome: Outcome, options: Options, seconds: float) -> dict[str, Any]:
    """What is kept of a part: plain JSON data, with what made it."""
    found: dict[str, Any] = plain(
        {
            "name": part.name,
            "title": part.title,
            "bars": [{**asdict(bar), "met": bar.met} for bar in outcome.bars],
            "page": outcome.page,
            "numbers": dict(outcome.numbers),
            "facts": dict(outcome.facts) | {"seed": options.seed, "seconds": round(seconds, 1)},
            "validations": [asdict(row) for row in outcome.validations],
            "git": git_state(),
            "versions": versions(),
            "hardware": hardware(),
        }
    )
    return found


def keep(found: dict[str, Any], kept: Path = KEPT) -> None:
    """Write one record, then the page and the validations from all that there are."""
    kept.mkdir(parents=True, exist_ok=True)
    write_atomic(kept / f"{found['name']}.json", json.dumps(found, indent=1, ensure_ascii=False) + "\n")
    rebuild(kept)


def rebuild(kept: Path = KEPT, doc: Path = DOC, validations: Path = VALIDATIONS) -> None:
    """docs/fidelity.md and the validations, from the records alone."""
    found = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(kept.glob("*.json"))]
    write_atomic(doc, page(found))
    write_validations([row for one in found for row in one["validations"]], validations)

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

from bench.code import code_digest
from bench.errors import MissingError, UsageError, unknown
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
WRITTEN = [str(path.relative_to(ROOT)) for path in (DOC, KEPT, VALIDATIONS)]


def parts() -> dict[str, Part]:
    """Every part, by its name, in the page's order."""
    found = [import_module(f"{folder.__name__}.{m.name}") for m in pkgutil.iter_modules(folder.__path__)]
    named = {module.PART.name: module.PART for module in found if hasattr(module, "PART")}
    return dict(sorted(named.items()))


def writable() -> bool:
    """Whether there is a docs/fidelity.md to write: in a checkout, not in an installed copy."""
    return KEPT.is_dir()


def choose(names: Sequence[str]) -> list[Part]:
    """Parts by name or by first letter; all of them if none is named. Raises UsageError."""
    there = parts()
    chosen: dict[str, Part] = {}
    for name in names:
        fits = {key: part for key, part in there.items() if name in (key, key.partition("-")[0])}
        if not fits:
            raise unknown("part", name, there)
        chosen |= fits
    return list((chosen or there).values())


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
            "code": code_digest(),
            "git": git_state(written=WRITTEN),
            "versions": versions(),
            "hardware": hardware(),
        }
    )
    return found


def keep(found: dict[str, Any], kept: Path = KEPT, doc: Path = DOC, validations: Path = VALIDATIONS) -> None:
    """Write one record, then the page and the validations from all that there are. Raises OSError."""
    kept.mkdir(parents=True, exist_ok=True)
    write_atomic(kept / f"{found['name']}.json", json.dumps(found, indent=1, ensure_ascii=False) + "\n")
    rebuild(kept, doc, validations)


def rebuild(kept: Path = KEPT, doc: Path = DOC, validations: Path = VALIDATIONS) -> None:
    """docs/fidelity.md and the validations, from the records alone. Raises UsageError for a bad record."""
    found = [_read(path) for path in sorted(kept.glob("*.json"))]
    there = {one["name"] for one in found}
    write_atomic(doc, page(found, [part.title for name, part in parts().items() if name not in there]))
    write_validations([row for one in found for row in one["validations"]], validations)


def _read(path: Path) -> dict[str, Any]:
    """A record that can be shown; one with the marks of a merge cannot."""
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        page([found])
    except (ValueError, TypeError, LookupError) as error:
        raise UsageError(f"{path} is no record of a part ({error}); run that part again") from None
    return found

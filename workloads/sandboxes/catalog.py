"""Kinds of sandboxes by name: every file of this folder with a module-level ``SANDBOX``."""

from __future__ import annotations

import ast
import difflib
import importlib
from functools import cache
from pathlib import Path

from workloads.sandboxes.contract import SandboxError, SandboxKind


class UnknownName(LookupError):
    """No kind is called so; the message names those that there are, the nearest first."""


@cache
def sandbox_kinds() -> dict[str, SandboxKind]:
    """All, by name."""
    found = {}
    for file in sorted(Path(__file__).parent.glob("*.py")):
        if "SANDBOX" in _assigned(file):
            kind: SandboxKind = importlib.import_module(f"workloads.sandboxes.{file.stem}").SANDBOX
            found[kind.name] = kind
    return found


def sandbox_kind(name: str) -> SandboxKind:
    """Raises UnknownName."""
    kinds = sandbox_kinds()
    if name not in kinds:
        near = difflib.get_close_matches(name, kinds, 1, 0.5)
        hint = f"did you mean {near[0]!r}? ({', '.join(kinds)})" if near else f"known: {', '.join(kinds)}"
        raise UnknownName(f"no sandbox kind {name!r}: {hint}")
    return kinds[name]


def sweep(owner: str | None = None) -> list[str]:
    """What runs that are gone left, of every kind, is removed (``owner``: that run's); in words, and so is
    what could not be looked for: no run is lost for it."""
    said = []
    for kind in sandbox_kinds().values():
        try:
            said += kind.sweep(owner)
        except SandboxError as error:
            said.append(f"sandboxes of kind {kind.name} that a run left: cannot be looked for: {error}")
    return said


def _assigned(file: Path) -> set[str]:
    """Names that a module assigns; it is not imported for that (a supervisor is no module of ours)."""
    return {
        target.id
        for node in ast.parse(file.read_text(encoding="utf-8")).body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }

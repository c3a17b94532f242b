"""Cards with what was varied: kept beside the results as plain JSON, found again by show and report."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.code import code_digest
from bench.comparing import Cell, Group, group_id, read_groups
from bench.files import explain, write_json
from bench.manifest import command_line, git_state
from bench.results import find

FOLDER = "cards"
FORMAT = 1
RUN, COMPARISON, EXPERIMENT = "run", "comparison", "experiment"


def groups_of(results: Sequence[str], out: Path) -> list[Group]:
    """The groups (all that is equal but for the seed) of results and folders of results.

    A result may be given by the first digits of its name in ``out``. Raises UsageError, MissingError.
    """
    found: dict[tuple[Path, str], Group] = {}
    for text in results or [str(out)]:
        path = Path(text)
        folder = path if path.is_dir() else find(text, out)
        single = (folder / "manifest.json").exists()
        for group in read_groups(folder, "RESULT"):
            place = (folder.resolve().parent if single else folder.resolve(), group.id)
            old = found.get(place)
            cells = {**(old.cells if old else {}), **group.cells}
            found[place] = Group(group.id, group.where, dict(sorted(cells.items())), group.left_out)
    return list(found.values())


def entry(group: Group) -> dict[str, Any]:
    """A group's card with what it is the card of, and the sensitivity that is kept of it (or None)."""
    first = group.first
    return {
        "group": group.id,
        **{name: first.summary[name] for name in ("system", "workload", "badge")},
        "load": group.load,
        "seeds": sorted(group.cells),
        "card": first.summary["card"],
        "sensitivity": kept(first),
        "command": command_line(["bench", "card", str(first.folder), "--sensitivity"]),
        "left_out": list(group.left_out),
    }


def entries(cells: Iterable[Cell]) -> list[dict[str, Any]]:
    """The entries of cells, one a group, in the order of their first cells."""
    groups: dict[tuple[Path, str], dict[int, Cell]] = {}
    for cell in cells:
        place = (cell.folder.parent, group_id(cell.manifest["identity"]))
        groups.setdefault(place, {})[int(cell.summary["seed"])] = cell
    return [entry(Group(name, where, dict(sorted(of.items())))) for (where, name), of in groups.items()]


def keep(kind: str, name: str, out: Path, found: Mapping[str, Any]) -> Path:
    """Write down what was varied of ``name``, in the folder of results ``out``. Raises MissingError."""
    path = out / FOLDER / f"{kind}-{name}.json"
    made = {"format": FORMAT, "kind": kind, "name": name, "code": code_digest(), "git": git_state()}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, made | dict(found))
    except OSError as error:
        raise explain(error, path.parent) from None
    return path


def keep_sensitivity(group: Group, found: Mapping[str, Any]) -> None:
    """Beside the results; one of more seeds that is there already stays. Raises MissingError."""
    old = kept(group.first)
    if old is None or set(old["seeds"]) <= set(found["seeds"]):
        keep(RUN, group.id, group.first.folder.parent, found)


def kept(cell: Cell) -> dict[str, Any] | None:
    """The sensitivity that was computed of a cell's group; its name contains the code that made it."""
    group = group_id(cell.manifest.get("identity") or {})
    return read(cell.folder.parent / FOLDER / f"{RUN}-{group}.json")


def shown(summary: dict[str, Any], folder: Path) -> dict[str, Any]:
    """A summary for a page: with the sensitivity of its group, and the command that computes it."""
    made = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    words = ["bench", "card", str(folder), "--sensitivity"]
    words += ["--seeds", str(len(seeds))] if len(seeds := summary.get("seeds", ())) > 1 else []
    return summary | {
        "sensitivity": kept(Cell(folder, summary, made)),
        "vary": command_line(words),
    }


def read(path: Path) -> dict[str, Any] | None:
    """What was kept in ``path``; None where there is nothing that can be read."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return data if isinstance(data, dict) and data.get("format") == FORMAT else None


def comparisons(folders: Iterable[Path], groups: Iterable[str]) -> list[dict[str, Any]]:
    """Comparisons whose verdicts were varied, of groups (by id) on either side, kept in ``folders``."""
    ids, found = set(groups), []
    for folder in dict.fromkeys(folders):
        for path in sorted((folder / FOLDER).glob(f"{COMPARISON}-*.json")):
            data = read(path)
            if data is not None and ids & {data.get("base_group"), data.get("new_group")}:
                found.append(data)
    return found

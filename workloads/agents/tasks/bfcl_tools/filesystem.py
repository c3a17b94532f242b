"""A file system in memory (BFCL's GorillaFileSystem): one working directory, names but no paths.

The state is the tree; where an agent stands in it is not part of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import deepcopy
from difflib import ndiff
from typing import Any

from workloads.agents.tasks.bfcl_tools.base import Result, ToolError, Tools

Entry = dict[str, Any]
"""{"type": "file", "content": text} or {"type": "directory", "contents": {name: entry}}."""
COUNTS = {"l": "lines", "w": "words", "c": "characters"}


class GorillaFileSystem(Tools):
    """Files and directories below one top directory, which is the working directory at first."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__(config)
        given = config.get("root") or {"workspace": {"type": "directory", "contents": {}}}
        top = next(iter(given))  # two tasks give a second one, which nothing can reach
        self.root: dict[str, Entry] = {top: deepcopy(given[top])}
        self._path = [top]

    def pwd(self) -> Result:
        """The working directory."""
        return {"current_working_directory": "/" + "/".join(self._path)}

    def ls(self, a: bool = False) -> Result:
        """Names in the working directory; hidden ones with ``a``."""
        names = [name for name in self._here() if a or not name.startswith(".")]
        return {"current_directory_content": names}

    def cd(self, folder: str) -> Result:
        """One level down, or up with ``..``."""
        if folder == "..":
            if len(self._path) == 1:
                raise ToolError("cd: this is the top directory")
            self._path.pop()
        elif folder not in (".", ""):
            self._directory(folder)
            self._path.append(folder)
        return self.pwd()

    def mkdir(self, dir_name: str) -> Result:
        """A new directory here."""
        self._new(dir_name, {"type": "directory", "contents": {}})
        return {}

    def touch(self, file_name: str) -> Result:
        """A new, empty file here."""
        self._new(file_name, {"type": "file", "content": ""})
        return {}

    def echo(self, content: str, file_name: str | None = None) -> Result:
        """Say ``content``, or write it to a file here in place of what that holds."""
        if file_name is None:
            return {"terminal_output": content}
        if file_name in self._here():
            self._file(file_name)["content"] = content
        else:
            self._new(file_name, {"type": "file", "content": content})
        return {"terminal_output": None}

    def cat(self, file_name: str) -> Result:
        """A file's content."""
        return {"file_content": self._text(file_name)}

    def sort(self, file_name: str) -> Result:
        """A file's lines in order; the file stays as it is."""
        return {"sorted_content": "\n".join(sorted(self._text(file_name).splitlines()))}

    def tail(self, file_name: str, lines: int = 10) -> Result:
        """A file's last lines."""
        kept = self._text(file_name).splitlines()[-lines:] if lines > 0 else []
        return {"last_lines": "\n".join(kept)}

    def grep(self, file_name: str, pattern: str) -> Result:
        """The lines of a file that hold ``pattern``, taken literally."""
        return {"matching_lines": [line for line in self._text(file_name).splitlines() if pattern in line]}

    def wc(self, file_name: str, mode: str = "l") -> Result:
        """How many lines, words or characters a file has."""
        text = self._text(file_name)
        if mode not in COUNTS:
            raise ToolError(f"wc: no mode {mode!r}; there are l, w and c")
        counted = {"l": len(text.splitlines()), "w": len(text.split()), "c": len(text)}[mode]
        return {"count": counted, "type": COUNTS[mode]}

    def diff(self, file_name1: str, file_name2: str) -> Result:
        """Lines that only the first (-) or only the second file (+) has."""
        compared = ndiff(self._text(file_name1).splitlines(), self._text(file_name2).splitlines())
        return {"diff_lines": "\n".join(line for line in compared if line[:2] in ("- ", "+ "))}

    def du(self, human_readable: bool = False) -> Result:
        """Characters in all files from here down."""
        size = sum(len(entry["content"]) for _, entry in _walk("", self._here()) if entry["type"] == "file")
        return {"disk_usage": _readable(size) if human_readable else f"{size} bytes"}

    def find(self, path: str = ".", name: str | None = None) -> Result:
        """Paths from ``path`` down whose last part holds ``name``."""
        start = self._here()
        for part in path.split("/"):
            if part not in (".", ""):
                start = _contents(start, part)
        found = [at for at, _ in _walk(path, start) if name is None or name in at.rpartition("/")[2]]
        return {"matches": found}

    def rm(self, file_name: str) -> Result:
        """Remove a file, or a directory with all that is in it."""
        self._existing(file_name)
        del self._here()[file_name]
        return {"result": f"'{file_name}' removed"}

    def rmdir(self, dir_name: str) -> Result:
        """Remove an empty directory."""
        if self._directory(dir_name):
            raise ToolError(f"rmdir: '{dir_name}' is not empty")
        del self._here()[dir_name]
        return {"result": f"'{dir_name}' removed"}

    def mv(self, source: str, destination: str) -> Result:
        """Move into a directory here, or give another name."""
        entry = self._existing(source)
        told = self._place(source, destination, entry)
        del self._here()[source]
        return {"result": f"'{source}' moved to {told}"}

    def cp(self, source: str, destination: str) -> Result:
        """Copy into a directory here, or under another name."""
        told = self._place(source, destination, deepcopy(self._existing(source)))
        return {"result": f"'{source}' copied to {told}"}

    def _place(self, source: str, destination: str, entry: Entry) -> str:
        here = self._here()
        if source == destination:
            raise ToolError(f"'{source}' is the source and the destination")
        if here.get(destination, {}).get("type") == "directory":
            inside = here[destination]["contents"]
            if source in inside:
                raise ToolError(f"'{destination}/{source}' exists")
            inside[source] = entry
            return f"'{destination}/{source}'"
        self._new(destination, entry)
        return f"'{destination}'"

    def _here(self) -> dict[str, Entry]:
        at: dict[str, Entry] = self.root
        for part in self._path:
            at = at[part]["contents"]
        return at

    def _existing(self, name: str) -> Entry:
        if name not in self._here():
            paths = "; names only, no paths" if "/" in name else ""
            raise ToolError(f"no '{name}' in /{'/'.join(self._path)}{paths}")
        return self._here()[name]

    def _directory(self, name: str) -> dict[str, Entry]:
        self._existing(name)
        return _contents(self._here(), name)

    def _file(self, name: str) -> Entry:
        entry = self._existing(name)
        if entry["type"] != "file":
            raise ToolError(f"'{name}' is a directory")
        return entry

    def _text(self, name: str) -> str:
        return str(self._file(name)["content"])

    def _new(self, name: str, entry: Entry) -> None:
        if "/" in name or name in ("", ".", ".."):
            raise ToolError(f"'{name}' is no name for this directory; paths are not allowed")
        if name in self._here():
            raise ToolError(f"'{name}' exists")
        self._here()[name] = entry


def _contents(at: dict[str, Entry], name: str) -> dict[str, Entry]:
    if at.get(name, {}).get("type") != "directory":
        raise ToolError(f"no directory '{name}'")
    inside: dict[str, Entry] = at[name]["contents"]
    return inside


def _walk(path: str, at: dict[str, Entry]) -> Iterator[tuple[str, Entry]]:
    for name, entry in at.items():
        yield f"{path}/{name}", entry
        if entry["type"] == "directory":
            yield from _walk(f"{path}/{name}", entry["contents"])


def _readable(size: float) -> str:
    for unit in ("B", "KB", "MB"):
        if size < 1024:
            return f"{size:.2f} {unit}"
        size /= 1024
    return f"{size:.2f} GB"

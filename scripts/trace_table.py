"""What every file below a folder is read as, as Markdown: the table in docs/formats-data.md.

python scripts/trace_table.py FOLDER

One file at a time, with the defaults of ``bench run`` (context of 131 072 tokens, programs that do not
fit are skipped). Tokens are those of the calls that are left: prompts (cached or not), replies.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from workloads.base import WorkloadError
from workloads.dryrun import dry_run
from workloads.files import files_of
from workloads.load import detect, load

HEAD = "| file | format | programs | calls | prompt tokens | output tokens | skipped and repaired |"


@dataclass(frozen=True)
class Read:
    """What a file is read as; lengths in tokens."""

    fmt: str
    programs: int
    calls: int
    prompt: int
    output: int
    skipped: Mapping[str, int]
    repaired: Mapping[str, int]


def read(file: Path) -> Read:
    """One file, all of it. Raises WorkloadError where it is refused."""
    fmt = detect(file)[0].name
    result = load(str(file))
    calls = prompt = output = 0
    for spec in result.programs:
        dag = dry_run(spec)
        calls, prompt, output = calls + len(dag.calls), prompt + dag.total_prompt, output + dag.total_output
    return Read(fmt, len(result.programs), calls, prompt, output, result.skipped, result.repaired)


def line(file: Path, root: Path) -> str:
    """The row of the table for one file."""
    name = f"`{file.relative_to(root).as_posix()}`"
    try:
        found = read(file)
    except WorkloadError as error:
        reason = str(error).partition("; name the format")[0].partition(" (formats:")[0]
        return f"| {name} | refused | | | | | {reason.replace('|', chr(92) + '|')} |"
    changes = [f"{n} skipped: {reason}" for reason, n in found.skipped.items()]
    changes += [f"{n} repaired: {reason}" for reason, n in found.repaired.items()]
    counts = " | ".join(f"{n:,}" for n in (found.programs, found.calls, found.prompt, found.output))
    return f"| {name} | {found.fmt} | {counts} | {'; '.join(changes)} |"


def main() -> None:
    """Print the table."""
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    root = Path(sys.argv[1])
    print(HEAD)
    print("|---|---|---|---|---|---|---|")
    for file in files_of(root):
        print(line(file, root), flush=True)


if __name__ == "__main__":
    main()

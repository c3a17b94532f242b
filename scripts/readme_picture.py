"""Draw the page of a finished result as an SVG: the picture in the README.

bench run --system atlas --workload mcts
python scripts/readme_picture.py results/CELL docs/run.svg
"""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import DEFAULT_TERMINAL_THEME

from bench.results import summary_of
from reports.summary import footer, render


def main(result: Path, picture: Path) -> None:
    """Render ``result`` in a 110-column terminal; the SVG refers to nothing outside itself."""
    summary = summary_of(result)
    console = Console(record=True, width=110, file=io.StringIO())
    console.print(f"$ {summary['repeat']}")
    console.print(render(summary))
    console.print(footer(summary), highlight=False)
    svg = console.export_svg(title="bench run", theme=DEFAULT_TERMINAL_THEME)
    svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)
    picture.write_text(svg.replace("Fira Code", "DejaVu Sans Mono"), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))

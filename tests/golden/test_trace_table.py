"""docs/formats-data.md says what every public file is read as: the table is made again."""

from pathlib import Path

import pytest

from scripts.trace_table import HEAD, line
from workloads.files import files_of

ROOT = Path(__file__).parents[2]
DATA = ROOT.parent / "shared" / "data"
PAGE = (ROOT / "docs" / "formats-data.md").read_text(encoding="utf-8")

pytestmark = pytest.mark.skipif(not DATA.is_dir(), reason="the public files are not here")


@pytest.mark.parametrize("folder", sorted(path.name for path in DATA.iterdir()) if DATA.is_dir() else [])
def test_every_file_is_read_or_refused_as_the_page_says(folder):
    assert HEAD in PAGE
    lines = [line(file, DATA) for file in files_of(DATA / folder)]
    assert [row for row in lines if f"\n{row}\n" not in PAGE] == []
    assert lines, "a folder without files says nothing"

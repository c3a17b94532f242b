import os
import subprocess
import sys
import tempfile
from pathlib import Path

from workloads.sandboxes import folders
from workloads.sandboxes.folders import mounts_below, remove_folder


def test_what_is_not_there(tmp_path):
    remove_folder(tmp_path / "none")


def test_links_are_not_followed(tmp_path):
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "file").touch()
    box = tmp_path / "box"
    box.mkdir()
    (box / "link").symlink_to(kept)
    remove_folder(box)
    (tmp_path / "box").symlink_to(kept)
    remove_folder(box)
    assert (kept / "file").exists()
    assert sorted(each.name for each in tmp_path.iterdir()) == ["kept"]


READ_ONLY = """
import os, sys
from pathlib import Path
from workloads.sandboxes.folders import remove_folder
box = Path(sys.argv[1])
if not os.getuid():
    os.setuid(65534)
(box / "a" / "b").mkdir(parents=True)
(box / "a" / "b" / "f").touch()
for folder in (box / "a" / "b", box / "a", box):
    folder.chmod(0o500)
remove_folder(box)
print(box.exists())
"""


def test_read_only_folders_of_one_who_is_not_root():
    root = str(folders.__file__).rpartition("/workloads/")[0]
    with tempfile.TemporaryDirectory() as place:
        os.chmod(place, 0o777)
        words = [sys.executable, "-c", READ_ONLY, f"{place}/box"]
        done = subprocess.run(words, cwd=root, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("False\n", "")


def test_mounts_below_a_folder(tmp_path):
    assert mounts_below(tmp_path) == []
    assert mounts_below(Path("/proc"))[0] == "/proc"
    assert "/proc" not in mounts_below(Path("/pro"))

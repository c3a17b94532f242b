"""``scripts/install.py``: what uv is told of pip's settings, and what happens where it is not or fails."""

import importlib.util
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "install.py"


@pytest.fixture
def install():
    spec = importlib.util.spec_from_file_location("install", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Shell:
    """Stands for ``subprocess.run``: notes what is run, and answers with codes by program."""

    def __init__(self, settings="", **codes):
        self.settings, self.codes, self.ran = settings, codes, []

    def run(self, command, env=None, **_):
        program = "pip" if command[:3] == [sys.executable, "-m", "pip"] else "uv"
        words = command[3:] if program == "pip" else command[1:]
        self.ran.append((program, words, env or {}))
        self.returncode = self.codes.get(program, 0)
        self.stdout = self.settings
        return self

    def installs(self):
        return [(program, words) for program, words, _ in self.ran if "install" in words]


@pytest.fixture
def shell(install, monkeypatch, request):
    made = Shell(**getattr(request, "param", {}))
    monkeypatch.setattr(install.subprocess, "run", made.run)
    monkeypatch.setattr(install, "find_uv", lambda: "/somewhere/uv")
    return made


def test_settings_of_pip_are_read_as_it_prints_them(install):
    listing = (
        ":env:.find-links='/a /b'\nglobal.extra-index-url='file:///x\\nfile:///y'\nfreeze.timeout='10'\n"
    )
    assert install.read_settings(listing) == [
        ("find-links", ["/a", "/b"]),
        ("extra-index-url", ["file:///x", "file:///y"]),
    ]


def test_uv_is_told_each_of_them_once(install):
    twice = [("find-links", ["/a"]), ("find-links", ["/a"]), ("cert", ["/c.pem"]), ("quiet", ["1"])]
    options, variables = install.translate(twice)
    assert options.count("/a") == 1
    assert options[options.index("/a") - 1] == "--find-links"
    assert variables == {"SSL_CERT_FILE": "/c.pem"}


def test_a_setting_that_uv_has_no_word_for_leaves_it_to_pip(install):
    assert install.translate([("require-hashes", ["true"])]) is None


@pytest.mark.parametrize("shell", [{"settings": "global.require-hashes='true'\n"}], indirect=True)
def test_then_uv_is_not_asked(install, shell):
    assert install.main(["thing"]) == 0
    assert [program for program, _ in shell.installs()] == ["pip"]


def test_where_uv_succeeds_pip_installs_nothing(install, shell):
    assert install.main(["--python", "/v/bin/python", "--without", "big", "--editable", ".[dev]"]) == 0
    ((program, words),) = shell.installs()
    assert program == "uv"
    assert words[-2:] == ["--editable", ".[dev]"]
    assert words[words.index("--python") + 1] == "/v/bin/python"
    assert "--overrides" in words


@pytest.mark.parametrize("shell", [{"uv": 1}], indirect=True)
def test_where_it_fails_pip_does_it_and_takes_out_what_is_not_wanted(install, shell):
    assert install.main(["--python", "/v/bin/python", "--without", "big", "thing"]) == 0
    assert shell.ran[-2][1] == ["--python", "/v/bin/python", "install", "--quiet", "thing"]
    assert shell.ran[-1][1] == ["--python", "/v/bin/python", "uninstall", "--yes", "big"]


@pytest.mark.parametrize("shell", [{"uv": 1, "pip": 3}], indirect=True)
def test_a_second_index_is_the_last_resort_and_pips_code_is_the_answer(install, shell):
    assert install.main(["--second-index", "https://example.org/simple", "thing"]) == 3
    ways = [(program, "--extra-index-url" in words) for program, words in shell.installs()]
    assert ways == [("uv", False), ("uv", True), ("pip", False), ("pip", True)]
    assert not [words for _, words, _ in shell.ran if "uninstall" in words]


def test_uv_is_put_beside_the_python_where_there_is_none(install, monkeypatch, tmp_path):
    shell = Shell()
    monkeypatch.setattr(install.subprocess, "run", shell.run)
    monkeypatch.setattr(install.sys, "executable", str(tmp_path / "python"))
    monkeypatch.setattr(install, "_PIP", [str(tmp_path / "python"), "-m", "pip"])
    monkeypatch.setattr(install.shutil, "which", lambda name: None)
    assert install.find_uv() == str(tmp_path / "uv")
    assert shell.ran[0][1] == ["install", "--quiet", install.UV]

import pytest

from workloads.agents.tasks.bfcl_tools.base import ToolError
from workloads.agents.tasks.bfcl_tools.filesystem import GorillaFileSystem


def files(**contents):
    return {name: {"type": "file", "content": text} for name, text in contents.items()}


@pytest.fixture
def fs():
    inside = files(a="one\ntwo\n", b="one\nthree\n") | {".secret": {"type": "file", "content": ""}}
    docs = {"type": "directory", "contents": files(a="")}
    return GorillaFileSystem({"root": {"home": {"type": "directory", "contents": {**inside, "docs": docs}}}})


def test_where_one_stands_is_no_state(fs):
    before = fs.state()
    assert fs.cd("docs") == {"current_working_directory": "/home/docs"}
    assert fs.state() == before
    assert fs.cd("..") == fs.pwd() == {"current_working_directory": "/home"}


def test_listing_and_finding(fs):
    assert fs.ls()["current_directory_content"] == ["a", "b", "docs"]
    assert ".secret" in fs.ls(a=True)["current_directory_content"]
    assert fs.find(name="a")["matches"] == ["./a", "./docs/a"]
    assert fs.find(path="docs")["matches"] == ["docs/a"]


def test_reading(fs):
    assert fs.cat("a") == {"file_content": "one\ntwo\n"}
    assert fs.tail("a", lines=1) == {"last_lines": "two"}
    assert fs.tail("a", lines=0) == {"last_lines": ""}
    assert fs.grep("b", "three") == {"matching_lines": ["three"]}
    assert fs.diff("a", "b") == {"diff_lines": "- two\n+ three"}
    assert fs.sort("b") == {"sorted_content": "one\nthree"}
    assert [fs.wc("a", mode)["count"] for mode in "lwc"] == [2, 2, 8]
    assert fs.du() == {"disk_usage": "18 bytes"}


def test_writing(fs):
    fs.touch("c")
    fs.echo("text", "c")
    assert fs.cat("c") == {"file_content": "text"}
    assert fs.echo("said") == {"terminal_output": "said"}
    fs.mkdir("empty")
    fs.rmdir("empty")
    fs.rm("docs")
    assert set(fs.ls()["current_directory_content"]) == {"a", "b", "c"}


def test_moving_into_a_directory_and_to_a_name(fs):
    fs.mv("b", "docs")
    fs.mv("a", "renamed")
    assert fs.find()["matches"] == ["./.secret", "./docs", "./docs/a", "./docs/b", "./renamed"]


def test_a_copy_is_another_file(fs):
    fs.cp("docs", "more")
    fs.cd("more")
    fs.echo("new", "a")
    fs.cd("..")
    fs.cd("docs")
    assert fs.cat("a") == {"file_content": ""}


@pytest.mark.parametrize(
    ("function", "arguments", "why"),
    [
        ("cd", ("nowhere",), "no 'nowhere' in /home"),
        ("cd", ("a",), "no directory 'a'"),
        ("cd", ("..",), "top directory"),
        ("cat", ("docs",), "is a directory"),
        ("cat", ("docs/a",), "names only"),
        ("touch", ("a",), "exists"),
        ("mkdir", ("x/y",), "paths are not allowed"),
        ("mv", ("a", "docs"), "'docs/a' exists"),
        ("cp", ("a", "a"), "source and the destination"),
        ("rmdir", ("docs",), "not empty"),
        ("wc", ("a", "z"), "no mode"),
        ("find", ("nowhere",), "no directory"),
    ],
)
def test_refusals_change_nothing(fs, function, arguments, why):
    before = fs.state()
    with pytest.raises(ToolError, match=why.replace("'", ".")):
        getattr(fs, function)(*arguments)
    assert fs.state() == before

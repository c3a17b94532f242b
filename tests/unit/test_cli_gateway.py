"""``bench gateway``: what it refuses, and a life in the foreground."""

import json
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request

import pytest
import typer
from typer.testing import CliRunner

from bench.cli.gateway import gateway
from systems.engines.vllm_virtual import ROOT

ENGINE = ["--engine", "http://127.0.0.1:9"]
RECORD = ["--observe", "--record"]
RUN = "import typer\nfrom bench.cli.gateway import gateway\ntyper.run(gateway)\n"


def bench(*words):
    app = typer.Typer()
    app.command()(gateway)
    return CliRunner().invoke(app, list(words))


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (["--engine", "127.0.0.1:8000"], 2, "an engine's URL is http://HOST:PORT"),
        (["--engine", "http://h:99999"], 2, "an engine's URL is http://HOST:PORT"),
        (["--engine", "http://h:1/v1"], 2, "without a path"),
        ([*ENGINE, *ENGINE], 2, "is named twice"),
        ([*ENGINE, "--system", "autelix"], 2, "Did you mean autellix?"),
        ([*ENGINE, "--system", "smg-sticky"], 2, "serves it, not this gateway"),
        ([*ENGINE, "--router", "nope"], 2, "unknown router 'nope'"),
        ([*ENGINE, "--knob", "router.most_short=x"], 2, "most_short must be a number"),
        ([*ENGINE, "--calls", "a", "--calls", "b"], 2, "--calls: one for each of 1 engines, got 2"),
        ([*ENGINE, "--api-key-file", "/nowhere/keys"], 2, "No such file"),
        ([*ENGINE, "--knob", "retention=survival"], 2, "over the engines' control sockets (--control)"),
        ([*ENGINE, "--observe", "--system", "plas"], 2, "leave out --system plas, or --observe"),
        ([*ENGINE, "--observe", "--knob", "gate=program-cap"], 2, "leave out --knob gate=program-cap"),
        (
            [*ENGINE, "--knob", "gateway.late=soon"],
            2,
            "gateway.late must be a number of 0 or more, got 'soon'",
        ),
        ([*ENGINE, "--port", "0", "--record", "/proc/none"], 6, "/proc/none: No such file"),
        ([*ENGINE, "--port", "70000"], 2, "port must be 0 to 65535"),
        ([*ENGINE, "--max-hold", "0"], 2, "max_hold_s must be more than 0"),
        ([*ENGINE, "--port", "0", "--log", "/nowhere/log"], 6, "/nowhere/log: No such file"),
        ([*ENGINE, "--host", "203.0.113.1", "--port", "0"], 6, "cannot listen on 203.0.113.1"),
        ([], 2, "--engine"),
    ],
)
def test_what_it_refuses(words, code, text):
    result = bench(*words)
    assert result.exit_code == code
    assert text in result.output
    assert "Traceback" not in result.output


def test_a_key_file_without_keys_is_refused(tmp_path):
    (tmp_path / "keys").write_text("\n \n")
    result = bench(*ENGINE, "--api-key-file", str(tmp_path / "keys"))
    assert (result.exit_code, "there is no key in it" in result.output) == (2, True)


def test_a_port_that_is_taken_is_said():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        result = bench(*ENGINE, "--port", str(port))
    assert result.exit_code == 6
    assert f"cannot listen on 127.0.0.1:{port}: Address already in use" in result.output


def test_it_serves_until_ctrl_c_with_few_flags(tmp_path):
    assert bench("--help").output.count(" --") <= 22  # two of them the shell completion
    (tmp_path / "keys").write_text("one\ntwo\n")
    process = subprocess.Popen(
        [sys.executable, "-c", RUN, *ENGINE, "--port", "0", "--api-key-file", tmp_path / "keys",
         *RECORD, tmp_path / "r"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT,
    )  # fmt: skip
    try:
        url = process.stdout.readline().split()[1]
        assert process.stdout.readline() == "Ctrl-C ends it.\n"
        request = urllib.request.Request(f"{url}/v1/models")
        with pytest.raises(urllib.error.HTTPError, match="401"):
            urllib.request.urlopen(request, timeout=5)
        request.add_header("Authorization", "Bearer two")
        with pytest.raises(urllib.error.HTTPError, match="503"):
            urllib.request.urlopen(request, timeout=5)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=10)
    finally:
        process.kill()
        process.wait()
    assert (process.returncode, out, err) == (0, "", "")
    head = json.loads((tmp_path / "r" / "calls-0001.jsonl").read_text())
    assert (head["event"], head["observe"], head["system"]) == ("recording", True, "session-pinned")

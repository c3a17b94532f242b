"""What only a real process can show: kills, signals, hash seeds, start-up cost, a full disk."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

BENCH = [sys.executable, "-m", "bench.cli.main"]
RUN = ["run", "--system", "atlas", "--workload", "mcts", "--n", "25", "--rate", "0.3", "--json"]


def start(words, out, **env):
    return subprocess.Popen(
        [*BENCH, *words, "--out", str(out)],
        env=os.environ | env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process, timeout=60):
    stdout, stderr = process.communicate(timeout=timeout)
    return process.returncode, stdout, stderr


def interrupt_mid_run(out, how, words=RUN):
    """Start a run and send it a signal once its tables are being written."""
    process = start(words, out)
    deadline = time.monotonic() + 30
    while not list(out.glob("*/*.parquet.part")):
        assert process.poll() is None, finish(process)
        assert time.monotonic() < deadline
        time.sleep(0.005)
    process.send_signal(how)
    return finish(process)


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    """The undisturbed run's summary."""
    code, stdout, stderr = finish(start(RUN, tmp_path_factory.mktemp("ref"), PYTHONHASHSEED="1"))
    assert code == 0, stderr
    return json.loads(stdout)


def test_a_killed_run_is_run_again_with_the_same_hash(tmp_path, reference):
    code, _, _ = interrupt_mid_run(tmp_path, signal.SIGKILL)
    assert code == -signal.SIGKILL
    (folder,) = tmp_path.iterdir()
    left = {p.name for p in folder.iterdir()}
    assert "summary.json" not in left
    assert {n for n in left if not n.endswith(".part")} <= {"manifest.json", "writer.pid"}
    code, stdout, stderr = finish(start(RUN, tmp_path, PYTHONHASHSEED="2"))
    assert code == 0, stderr
    assert json.loads(stdout)["result_hash"] == reference["result_hash"]
    assert not [p for p in folder.iterdir() if p.suffix in (".part", ".pid")]


def test_ctrl_c_exits_130_and_says_how_to_go_on(tmp_path):
    long = ["300" if word == "25" else word for word in RUN]  # not over before the signal comes
    code, _, stderr = interrupt_mid_run(tmp_path, signal.SIGINT, long)
    assert code == 130
    assert "the same command goes on" in stderr
    assert "Traceback" not in stderr


def test_a_disk_that_fills_up_is_one_line(tmp_path):
    words = [
        "run",
        "--system",
        "atlas",
        "--workload",
        "mcts",
        "--n",
        "40",
        "--rate",
        "0.3",
        "--out",
        tmp_path,
    ]
    code = (
        "import bench.files, bench.eventlog as e, sys; bench.files.PROBE = 1000; e.ROW_GROUP = 500\n"
        "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))\n"
        "from bench.cli.main import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, words)], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 6, done.stderr
    assert "no space left for results" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not list(tmp_path.glob("*/summary.json"))


@pytest.mark.parametrize(
    "words", [["--help"], ["version"], ["ls", "systems"], ["trace", "stats", "chatbot", "-n", "3", "--json"]]
)
def test_a_full_stdout_is_one_line(words):
    with open("/dev/full", "w") as full:
        done = subprocess.run([*BENCH, *words], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
    assert done.returncode == 6, done.stderr
    assert done.stderr == "error: cannot write to stdout: No space left on device\n"


def test_help_costs_little():
    """Over what typer itself costs on this machine, as loaded as it is."""
    tail = "\nu = resource.getrusage(resource.RUSAGE_SELF); print(u.ru_utime + u.ru_stime)"
    alone = "import resource, typer, typer.rich_utils"
    ours = "import resource, sys; sys.argv = ['bench', '--help']; from bench.cli.main import main\n"
    ours += "try: main()\nexcept SystemExit: pass"

    def seconds(code):
        out = subprocess.check_output([sys.executable, "-c", code + tail], text=True)
        return float(out.split()[-1])

    ratio = min(seconds(ours) / seconds(alone) for _ in "abc")
    assert ratio <= 1.7


def test_help_imports_nothing_heavy():
    code = "import sys; from bench.cli import main; print([m for m in ('numpy', 'pandas', 'pyarrow', 'rich', "
    code += "'scipy', 'pydantic') if m in sys.modules])"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"

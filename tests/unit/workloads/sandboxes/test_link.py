import asyncio
import os
import signal
import sys
import time
from pathlib import Path

import pytest

from workloads.sandboxes.link import END_S, Gone, Link, Refused
from workloads.sandboxes.local import SUPERVISOR


def run(tmp_path, work):
    (tmp_path / "tmp").mkdir()

    async def go():
        words = [sys.executable, "-I", "-S", str(SUPERVISOR), str(os.getpid()), str(tmp_path)]
        link = await Link.start(
            [*words, str(tmp_path / "tmp"), "0"], {"PATH": os.environ["PATH"]}, tmp_path / "e"
        )
        try:
            await work(link)
        finally:
            assert await link.end() is not None

    asyncio.run(go())


def ask(link, command, timeout=5.0, **fields):
    said = {"stdin": "", "cwd": "", "mark": "m", "most": 100, **fields}
    return link.ask("exec", command=command, timeout=timeout, **said)


def test_large_inputs_and_outputs(tmp_path):
    async def work(link):
        text = "é" * 3_000_000
        said = await ask(link, "cat", 20.0, stdin=text, most=10_000_000)
        assert said["output"] == text
        with pytest.raises(Refused, match="Argument list too long"):
            await ask(link, "x" * 200_000)
        assert (await ask(link, "echo goes on"))["output"] == "goes on\n"

    run(tmp_path, work)


def test_what_a_daemon_says_later_is_dropped_and_does_not_end_it(tmp_path):
    async def work(link):
        said = await ask(link, "(while sleep .02; do echo more; echo x >> log; done) & echo first")
        assert said["output"] == "first\n"
        assert (await ask(link, "until [ $(wc -l < log) -gt 5 ]; do sleep .02; done", 20.0))["code"] == 0

    run(tmp_path, work)


def test_a_signal_is_a_negative_status(tmp_path):
    async def work(link):
        assert (await ask(link, "kill -9 $$"))["code"] == -9
        assert (await ask(link, "kill -PIPE $$"))["code"] == -13, "tools must not inherit that it is ignored"

    run(tmp_path, work)


def test_one_that_does_not_answer_is_gone_and_killed(tmp_path):
    async def work(link):
        os.kill(link.pid, signal.SIGSTOP)
        with pytest.raises(Gone, match=r"no answer within 0\.1 s"):
            await link.ask("disk", 0.1)
        with pytest.raises(Gone, match="does not answer"):
            await link.ask("disk", 60.0)
        begin = time.monotonic()
        assert await link.end() == -9
        assert time.monotonic() - begin < END_S, "nothing to wait for"

    run(tmp_path, work)


GARBAGE = {
    "a line": b"hello from a tool", "no object": b"\0\0\0\1[", "a list": b"\0\0\0\2[]",
    "no id": b"\0\0\0\2{}",
}  # fmt: skip


@pytest.mark.parametrize("written", GARBAGE.values(), ids=GARBAGE)
def test_what_is_no_reply_is_gone_at_once_and_says_why(tmp_path, written):
    async def work(link):
        begin = time.monotonic()
        Path(f"/proc/{link.pid}/fd/1").write_bytes(written)
        with pytest.raises(Gone, match="no reply: a tool wrote in its place"):
            await ask(link, "sleep 5", 60.0)
        with pytest.raises(Gone, match="no reply: a tool wrote in its place"):
            await ask(link, "true")
        assert time.monotonic() - begin < 5.0

    run(tmp_path, work)


def test_one_that_does_not_start_says_why(tmp_path):
    async def start(*words):
        await Link.start(words, {}, tmp_path / "errors")

    with pytest.raises(Gone, match="cannot run nothing-of-that-name: No such file"):
        asyncio.run(start("nothing-of-that-name"))
    with pytest.raises(Gone, match="it did not start: so it goes"):
        asyncio.run(start("/bin/sh", "-c", "echo so it goes >&2"))
    with pytest.raises(Gone, match="whoever started this sandbox is gone"):
        asyncio.run(start(sys.executable, "-I", "-S", str(SUPERVISOR), "1", "/", "/", "0"))

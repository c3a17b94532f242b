"""The texts of the public recordings, by source, in a fixed order; and small tokenizers."""

import json
from pathlib import Path

DATA = Path(__file__).parents[4] / "shared" / "data"
"""Not part of the project (see its SOURCES.md): tests skip where it is absent."""
COUNTS = Path(__file__).with_name("llama3_counts.json")
"""Llama-3 tokens of every text below, counted once with the tokenizers library."""


def _json(path):
    return json.loads(path.read_text())


def _lines(path):
    return [json.loads(line) for line in path.read_text().splitlines() if line.strip()]


def texts(data=DATA):
    """Source -> its distinct texts."""
    found = {}

    def add(source, text):
        if isinstance(text, str) and text.strip():
            found.setdefault(source, {})[text] = None

    for episode in _json(data / "taubench" / "gpt-4o-airline-first-24.json"):
        for message in episode["traj"]:
            add("tau-bench", message["content"])
            add("tau-bench", json.dumps(message["tool_calls"]) if message.get("tool_calls") else "")
    for path in sorted((data / "sweagent").glob("*.traj")):
        for message in _json(path)["history"]:
            add("SWE-agent", message["content"])
    for run in _lines(data / "openhands" / "resolver_mock_output.jsonl"):
        for event in run["history"]:
            for name in ("content", "thought", "code", "command"):
                add("OpenHands", event.get(name))
    for path in sorted((data / "toolbench" / "G1_answer").glob("*.json")):
        answer = _json(path)["answer_generation"]
        for messages in answer.get("train_messages", []):
            for message in messages:
                add("ToolBench", message["content"])
                add("ToolBench", json.dumps(message["function_call"]) if message.get("function_call") else "")
        add("ToolBench", json.dumps(answer["function"]))
    for path in sorted((data / "lmcache").glob("*/*.jsonl")):
        rows = _lines(path)
        for text in [*(row["output"] for row in rows), *(row["input"] for row in rows[-1:])]:
            add(f"LMCache {path.parent.name}", text)
    for path in sorted((data / "otel").glob("*.json")):
        for span in _json(path)["spans"]:
            add("OpenTelemetry", span["attributes"].get("gen_ai.output.text"))
            for message in json.loads(span["attributes"]["gen_ai.input.messages"]):
                add("OpenTelemetry", message["content"])
    for task in _lines(data / "bfcl" / "BFCL_v4_multi_turn_base.json"):
        for turn in task["question"]:
            for message in turn:
                add("BFCL", message["content"])
    for path in sorted((data / "bfcl" / "multi_turn_func_doc").glob("*.json")):
        for row in _lines(path):
            add("BFCL tools", json.dumps(row))
    return {source: list(known) for source, known in found.items()}


def word_tokenizer(folder):
    """A tokenizer.json that splits at white space: one token a word."""
    path = folder / "tokenizer.json"
    path.write_text(
        json.dumps(
            {
                "version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None,
                "pre_tokenizer": {"type": "WhitespaceSplit"}, "post_processor": None, "decoder": None,
                "model": {"type": "WordLevel", "vocab": {"[UNK]": 0}, "unk_token": "[UNK]"},
            }
        )
    )  # fmt: skip
    return path

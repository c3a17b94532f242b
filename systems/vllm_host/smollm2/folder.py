"""The model folder: config.json, weights, tokenizer, and where all of it is from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from systems.vllm_host.smollm2.gguf import Gguf, GgufError
from systems.vllm_host.smollm2.package import PACKAGE, Found
from systems.vllm_host.smollm2.weights import FORMS
from systems.vllm_host.smollm2.weights import write as write_weights
from systems.vllm_host.smollm2.words import PARSER, SOURCE, tokenizer, tokenizer_config

_INDENT = 1
_SIZES = {
    "embedding_length": "hidden_size", "feed_forward_length": "intermediate_size",
    "block_count": "num_hidden_layers", "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads", "rope.dimension_count": "head_dim",
    "vocab_size": "vocab_size", "context_length": "max_position_embeddings",
}  # fmt: skip
"""Whole numbers: GGUF's names, and those of transformers."""


def write(folder: Path, found: Found) -> Path:
    """Write the folder (made if need be; files in it are replaced) and return it.

    Takes seconds and 540 MB of disk. Raises GgufError, OSError.
    """
    file = Gguf.of(found.data)
    config = llama(file)
    texts = {
        "tokenizer.json": tokenizer(file),
        "tokenizer_config.json": tokenizer_config(file, config["max_position_embeddings"]),
        "generation_config.json": {k: v for k, v in config.items() if k.endswith("_token_id")},
        "config.json": config,
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / SOURCE).unlink(missing_ok=True)
    write_weights(file, config, folder / "model.safetensors")
    for name, content in {**texts, SOURCE: source(file, found)}.items():
        (folder / name).write_text(json.dumps(content, indent=_INDENT, ensure_ascii=False), encoding="utf-8")
    return folder


def llama(file: Gguf) -> dict[str, Any]:
    """config.json. Raises GgufError for what is no plain Llama with tied embeddings."""
    if (kind := file.value("general.architecture", str)) != "llama":
        raise GgufError(f"general.architecture is {kind}, only llama can be read")
    said = {theirs: file.value(f"llama.{name}", int) for name, theirs in _SIZES.items()}
    heads, kept = said["num_attention_heads"], said["num_key_value_heads"]
    width, size = said["hidden_size"], said["head_dim"]
    if min(said.values()) < 1 or width != heads * size or heads % kept:
        raise GgufError(f"{heads} heads of {size}, {kept} of them for keys, do not fit a width of {width}")
    epsilon = file.value("llama.attention.layer_norm_rms_epsilon", float)
    ids = {"bos": "bos", "eos": "eos", "pad": "padding"}
    return {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", **said, "hidden_act": "silu",
        "rms_norm_eps": float(f"{epsilon:.6g}"),  # a float32 of the file; 1e-05 is meant
        "rope_theta": file.value("llama.rope.freq_base", float),
        "tie_word_embeddings": True, "torch_dtype": "float32",
        **{f"{name}_token_id": file.value(f"tokenizer.ggml.{theirs}_token_id", int)
           for name, theirs in ids.items()},
    }  # fmt: skip


def source(file: Gguf, found: Found) -> dict[str, Any]:
    """The content of SOURCE."""
    kinds = {FORMS[tensor.kind].name for tensor in file.tensors.values()}
    return {
        "model": "SmolLM2-135M-Instruct", "package": PACKAGE, "from": found.origin, "file": found.file,
        "sha256": found.sha256, "license": file.said.get("general.license", "not said"),
        "quantisation": sorted(kinds), "tool_parser": PARSER,
        "changed": "numbers written out as float32; chat template with tools (ours) beside the package's",
    }  # fmt: skip

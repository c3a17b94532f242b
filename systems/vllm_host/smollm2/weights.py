"""Quantised tensors of a Llama in GGUF as the numbers they stand for, under the names that vLLM knows.

Every number is exactly the one that the quantisation means, in float32: nothing is rounded a second time.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from systems.vllm_host.smollm2.gguf import Gguf, GgufError, Tensor

Numbers = NDArray[np.float32]
Shape = tuple[int, ...]
_IN_BLOCK = 32
"""Numbers that share a scale, in both quantisations."""
_LAYER = {
    "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
}  # fmt: skip
"""Of a tensor in a layer: its name in GGUF, and in a Llama of transformers."""

_BESIDE = 2
"""Tensors in no layer."""


class _Form(NamedTuple):
    """How a kind of tensor is written: ``block`` numbers in ``size`` bytes."""

    name: str
    block: int
    size: int
    read: Callable[[memoryview], Numbers]


def _plain(data: memoryview) -> Numbers:
    return np.frombuffer(data, "<f4")


def _half(data: memoryview) -> Numbers:
    return np.frombuffer(data, "<f2").astype(np.float32)


def _q4_1(data: memoryview) -> Numbers:
    """A block: scale and least value as halves, then 16 bytes; low halves of bytes come first."""
    blocks = np.frombuffer(data, np.dtype([("scale", "<f2"), ("least", "<f2"), ("pairs", "u1", 16)]))
    steps = np.concatenate([blocks["pairs"] & 15, blocks["pairs"] >> 4], axis=1).astype(np.float32)
    scale, least = (blocks[name].astype(np.float32)[:, None] for name in ("scale", "least"))
    return np.asarray(steps * scale + least, np.float32).ravel()


def _q8_0(data: memoryview) -> Numbers:
    """A block: a scale as a half, then 32 signed bytes."""
    blocks = np.frombuffer(data, np.dtype([("scale", "<f2"), ("steps", "i1", _IN_BLOCK)]))
    scaled = blocks["steps"].astype(np.float32) * blocks["scale"].astype(np.float32)[:, None]
    return np.asarray(scaled, np.float32).ravel()


FORMS: Mapping[int, _Form] = {
    0: _Form("F32", 1, 4, _plain),
    1: _Form("F16", 1, 2, _half),
    3: _Form("Q4_1", _IN_BLOCK, 20, _q4_1),
    8: _Form("Q8_0", _IN_BLOCK, 34, _q8_0),
}
"""By ggml's number of the kind."""


def numbers(file: Gguf, tensor: Tensor) -> Numbers:
    """What a tensor stands for, in its shape. Raises GgufError for a kind that is not in FORMS."""
    form = FORMS.get(tensor.kind)
    if form is None:
        known = ", ".join(f"{kind} ({one.name})" for kind, one in FORMS.items())
        raise GgufError(f"tensor {tensor.name} is of kind {tensor.kind}; known: {known}")
    if tensor.shape[-1] % form.block:
        raise GgufError(f"tensor {tensor.name}: rows of {tensor.shape[-1]} are not whole {form.name} blocks")
    return form.read(file.bytes_of(tensor, tensor.count // form.block * form.size)).reshape(tensor.shape)


def halves_apart(rows: Numbers, heads: int) -> Numbers:
    """Rows of Q or K as transformers has them: llama.cpp has a rotation's two rows beside each other, there
    one is in the first half of a head and one in the second."""
    size = rows.shape[0] // heads // 2
    return np.ascontiguousarray(rows.reshape(heads, size, 2, -1).swapaxes(1, 2).reshape(rows.shape))


def expected(config: Mapping[str, Any]) -> Iterator[tuple[str, str, Shape]]:
    """(name in GGUF, name for vLLM, shape) of every tensor of a Llama with tied embeddings."""
    width, inner = config["hidden_size"], config["intermediate_size"]
    queries = config["num_attention_heads"] * config["head_dim"]
    kept = config["num_key_value_heads"] * config["head_dim"]
    shapes: dict[str, Shape] = {
        "attn_norm": (width,), "ffn_norm": (width,),
        "attn_q": (queries, width), "attn_k": (kept, width), "attn_v": (kept, width),
        "attn_output": (width, queries),
        "ffn_gate": (inner, width), "ffn_up": (inner, width), "ffn_down": (width, inner),
    }  # fmt: skip
    yield "token_embd.weight", "model.embed_tokens.weight", (config["vocab_size"], width)
    yield "output_norm.weight", "model.norm.weight", (width,)
    for i in range(config["num_hidden_layers"]):
        for name, theirs in _LAYER.items():
            yield f"blk.{i}.{name}.weight", f"model.layers.{i}.{theirs}.weight", shapes[name]


def check(file: Gguf, config: Mapping[str, Any]) -> None:
    """Raises GgufError if the file has not exactly the tensors that ``expected`` names, in those shapes."""
    layers = config["num_hidden_layers"]
    if len(file.tensors) != (count := _BESIDE + len(_LAYER) * layers):
        raise GgufError(
            f"{len(file.tensors)} tensors; a Llama of {layers} layers with tied embeddings has {count}"
        )
    wanted = {name: shape for name, _, shape in expected(config)}
    found = {name: tensor.shape for name, tensor in file.tensors.items()}
    for name in [*wanted, *found]:
        if wanted.get(name) != found.get(name):
            has, should = (str(one.get(name, "nothing")) for one in (found, wanted))
            raise GgufError(f"tensor {name}: the file has {has}, a Llama of this size {should}")


def write(file: Gguf, config: Mapping[str, Any], path: Path) -> None:
    """Write a safetensors file: the header's length, the header, tensors one behind the other, in float32.

    Raises GgufError, OSError; an unfinished file has another name.
    """
    check(file, config)
    at, header = 0, dict[str, Any]()
    for name, theirs, shape in expected(config):
        end = at + 4 * file.tensors[name].count
        header[theirs] = {"dtype": "F32", "shape": list(shape), "data_offsets": [at, end]}
        at = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    unfinished = path.with_name(f"{path.name}.unfinished")
    with unfinished.open("wb") as out:
        out.write(len(text).to_bytes(8, "little") + text)
        for name, _, _ in expected(config):
            out.write(_placed(file, config, name).astype("<f4", copy=False).tobytes())
    os.replace(unfinished, path)


def _placed(file: Gguf, config: Mapping[str, Any], name: str) -> Numbers:
    found = numbers(file, file.tensors[name])
    heads = {"attn_q": "num_attention_heads", "attn_k": "num_key_value_heads"}.get(name.split(".")[-2])
    return found if heads is None else halves_apart(found, config[heads])

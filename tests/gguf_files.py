"""GGUF files of our own, written from the format's description, and a Llama of a few rows."""

from __future__ import annotations

import struct

import numpy as np

ALIGNMENT = 32
HEADS, KEPT, SIZE, LAYERS, INNER = 2, 1, 32, 2, 96
WIDTH = HEADS * SIZE
PLAIN_TEMPLATE = (
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\nYou are a helpful AI assistant named SmolLM, "
    "trained by Hugging Face<|im_end|>\n' }}"
    "{% endif %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
"""The package's chat template (SmolLM2, Apache-2.0)."""
CONTROL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
MERGES = ["h e", "l l", "he ll", "hell o", "Ġ w"]


class U32(int):
    """Written as 32 bits."""


class I32(int):
    """Written as 32 bits, with a sign."""


class F32(float):
    """Written as 32 bits."""


def text(value):
    raw = value.encode()
    return struct.pack("<Q", len(raw)) + raw


def value(found):
    """(type, bytes)."""
    if isinstance(found, bool):
        return 7, struct.pack("<?", found)
    for kind, number, form in (
        (U32, 4, "<I"),
        (I32, 5, "<i"),
        (F32, 6, "<f"),
        (int, 11, "<q"),
        (float, 12, "<d"),
    ):
        if isinstance(found, kind):
            return number, struct.pack(form, found)
    if isinstance(found, str):
        return 8, text(found)
    parts = [value(one) for one in found]
    head = struct.pack("<IQ", parts[0][0] if parts else 4, len(parts))
    return 9, head + b"".join(raw for _, raw in parts)


def gguf(said, tensors, version=3):
    """``tensors``: name: (rows-first shape, kind, bytes)."""
    out = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(said))
    for key, found in said.items():
        kind, raw = value(found)
        out += text(key) + struct.pack("<I", kind) + raw
    at, body = 0, []
    for name, (shape, kind, raw) in tensors.items():
        sizes = struct.pack(f"<{len(shape)}Q", *reversed(shape))
        out += text(name) + struct.pack("<I", len(shape)) + sizes + struct.pack("<IQ", kind, at)
        padded = raw + bytes(-len(raw) % ALIGNMENT)
        at += len(padded)
        body.append(padded)
    return b"".join([out, bytes(-len(out) % ALIGNMENT), *body])


def f32(array):
    return array.shape, 0, np.ascontiguousarray(array, "<f4").tobytes()


def byte_characters():
    prints = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in prints]
    return [chr(byte) for byte in prints] + [chr(256 + i) for i in range(len(others))]


def vocabulary():
    return [*CONTROL, *byte_characters(), *(merge.replace(" ", "") for merge in MERGES)]


def small_llama(**changes):
    """(key-value pairs, tensors) of it; ``changes`` by key, None leaves one out. Numbers are seeded."""
    tokens = vocabulary()
    said = {
        "general.architecture": "llama", "general.license": "apache-2.0",
        "llama.embedding_length": U32(WIDTH), "llama.feed_forward_length": U32(INNER),
        "llama.block_count": U32(LAYERS), "llama.attention.head_count": U32(HEADS),
        "llama.attention.head_count_kv": U32(KEPT), "llama.rope.dimension_count": U32(SIZE),
        "llama.context_length": U32(512), "llama.rope.freq_base": F32(100000.0),
        "llama.vocab_size": U32(len(tokens)), "llama.attention.layer_norm_rms_epsilon": F32(1e-5),
        "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "smollm", "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [I32(3 if i < len(CONTROL) else 1) for i in range(len(tokens))],
        "tokenizer.ggml.merges": MERGES,
        "tokenizer.ggml.bos_token_id": U32(1), "tokenizer.ggml.eos_token_id": U32(2),
        "tokenizer.ggml.unknown_token_id": U32(0), "tokenizer.ggml.padding_token_id": U32(2),
        "tokenizer.chat_template": PLAIN_TEMPLATE,
    }  # fmt: skip
    said = {key: found for key, found in {**said, **changes}.items() if found is not None}
    rng = np.random.default_rng(1)
    shapes = {"token_embd": (len(tokens), WIDTH), "output_norm": (WIDTH,)}
    for i in range(LAYERS):
        kept = KEPT * SIZE
        shapes |= {f"blk.{i}.{name}": shape for name, shape in {
            "attn_norm": (WIDTH,), "ffn_down": (WIDTH, INNER), "ffn_gate": (INNER, WIDTH),
            "ffn_up": (INNER, WIDTH), "ffn_norm": (WIDTH,), "attn_k": (kept, WIDTH),
            "attn_output": (WIDTH, WIDTH), "attn_q": (WIDTH, WIDTH), "attn_v": (kept, WIDTH),
        }.items()}  # fmt: skip
    drawn = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    return said, {f"{name}.weight": f32(array) for name, array in drawn.items()}

"""A small Llama with random weights, written from nothing: a model that a real server can load in a second.

    python -m systems.vllm_host.tiny FOLDER

The folder holds config.json, model.safetensors (bf16) and a byte-level BPE tokenizer with a chat
template. The same arguments give the same bytes. What it says means nothing; that it computes is what counts.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice, product
from pathlib import Path
from random import Random
from typing import Any

END = "<|end|>"
CHAT = (
    "{% if tools %}tools:\n{% for t in tools %}{{ t | tojson }}\n{% endfor %}{% endif %}"
    "{% for m in messages %}{{ m['role'] }}: {{ m['content'] or '' }}\n"
    "{% for c in m['tool_calls'] or [] %}"
    "call {{ c['function']['name'] }} {{ c['function']['arguments'] | tojson }}\n"
    "{% endfor %}{% endfor %}"
    "{% if add_generation_prompt %}assistant:{% endif %}"
)
"""Chat template (Jinja): a line a tool, a line a message, a line for each tool that it calls; results are
messages of role ``tool``. Without tools it is as long as what was said."""
_BYTES = 256
_ASCII = 128
_PAIRED = "etaoinshrdlucmfwypvbgkqjxz01"
_SIGN_AND_MANTISSA = 0x807F
"""Of a bf16 number; the seven mantissa bits and the sign are drawn, the exponent is given."""
_EXPONENT = 7


@dataclass(frozen=True)
class TinyLlama:
    """Sizes of the model; ``context`` is its longest sequence in tokens, ``width`` the hidden size.

    Without ``ends`` no token ends a reply, which is then as long as it may be, and under greedy decoding
    each token is a text of its own, so that an event comes with each: for APIs that cannot ask for a length
    and leave out events without text (docs/relay.md).
    """

    layers: int = 4
    width: int = 256
    inner: int = 512
    heads: int = 4
    kv_heads: int = 2
    vocabulary: int = 1024
    context: int = 4096
    seed: int = 1
    ends: bool = True

    def __post_init__(self) -> None:
        if self.width % self.heads or self.heads % self.kv_heads:
            raise ValueError("width must be a multiple of heads, and heads one of kv_heads")
        most = _BYTES + len(_PAIRED) ** 2 + 1
        if not _BYTES < self.vocabulary <= most:
            raise ValueError(f"vocabulary must be from {_BYTES + 1} to {most}, got {self.vocabulary}")

    @property
    def head_size(self) -> int:
        """Numbers per head."""
        return self.width // self.heads

    def config(self) -> dict[str, Any]:
        """The content of config.json."""
        return {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "hidden_size": self.width,
            "intermediate_size": self.inner,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads,
            "head_dim": self.head_size,
            "vocab_size": self.vocabulary,
            "max_position_embeddings": self.context,
            "hidden_act": "silu",
            "rms_norm_eps": 1e-5,
            "rope_theta": 10000.0,
            "tie_word_embeddings": False,
            "bos_token_id": None,
            "eos_token_id": self.vocabulary - 1 if self.ends else None,
            "torch_dtype": "bfloat16",
        }

    def tensors(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        """(name, shape) of every weight, in the file's order."""
        width, kv = self.width, self.kv_heads * self.head_size
        yield "model.embed_tokens.weight", (self.vocabulary, width)
        for i in range(self.layers):
            layer = f"model.layers.{i}"
            for name, rows in (("q", width), ("k", kv), ("v", kv), ("o", width)):
                yield f"{layer}.self_attn.{name}_proj.weight", (rows, width)
            yield f"{layer}.mlp.gate_proj.weight", (self.inner, width)
            yield f"{layer}.mlp.up_proj.weight", (self.inner, width)
            yield f"{layer}.mlp.down_proj.weight", (width, self.inner)
            yield f"{layer}.input_layernorm.weight", (width,)
            yield f"{layer}.post_attention_layernorm.weight", (width,)
        yield "model.norm.weight", (width,)
        yield "lm_head.weight", (self.vocabulary, width)


def write(folder: Path, model: TinyLlama | None = None) -> Path:
    """Write the model's folder (created if need be) and return it. Raises OSError."""
    try:
        return _write(folder, model or TinyLlama())
    except OSError as error:  # a full disk does not say which
        error.filename = error.filename or str(folder)
        raise


def _write(folder: Path, model: TinyLlama) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(model.config(), indent=1))
    (folder / "model.safetensors").write_bytes(_weights(model))
    (folder / "tokenizer.json").write_text(json.dumps(_tokenizer(model.vocabulary)))
    kind = {"tokenizer_class": "PreTrainedTokenizerFast", **({"eos_token": END} if model.ends else {}),
            "chat_template": CHAT, "model_max_length": model.context}  # fmt: skip
    (folder / "tokenizer_config.json").write_text(json.dumps(kind))
    return folder


# Weights


def _weights(model: TinyLlama) -> bytes:
    """A safetensors file: the header's length, the header, the tensors one behind the other."""
    rng, data = Random(model.seed), bytearray()
    header: dict[str, Any] = {}
    for name, shape in model.tensors():
        begin = len(data)
        rows = bytearray(_ones(shape[0]) if len(shape) == 1 else _spread(rng, shape))
        if name == "lm_head.weight" and not model.ends:
            _silence(rows, model)
        data += rows
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [begin, len(data)]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + bytes(data)


def _silence(head: bytearray, model: TinyLlama) -> None:
    """A logit of 0, never the greatest of many, for what is no text alone: bytes above ASCII, the end."""
    row = 2 * model.width
    for begin, end in ((_ASCII, _BYTES), (model.vocabulary - 1, model.vocabulary)):
        head[begin * row : end * row] = bytes((end - begin) * row)


def _ones(count: int) -> bytes:
    return (0x3F80).to_bytes(2, "little") * count


def _spread(rng: Random, shape: tuple[int, ...]) -> bytes:
    """Magnitudes uniform in [s, 2s), random signs, with s a power of 2 near 1/sqrt(columns) / 1.5.

    So a row's product with a vector of unit variance has about unit variance: logits differ enough
    for an argmax that rounding does not move, and no layer drowns another.
    """
    count = shape[0] * shape[1]
    exponent = 127 - (shape[1].bit_length() // 2 + 1)
    words = int.from_bytes(rng.randbytes(2 * count), "little")
    words &= _repeated(_SIGN_AND_MANTISSA, count)
    words |= _repeated(exponent << _EXPONENT, count)
    return words.to_bytes(2 * count, "little")


def _repeated(word: int, count: int) -> int:
    return int.from_bytes(word.to_bytes(2, "little") * count, "little")


# Tokenizer


def _tokenizer(size: int) -> dict[str, Any]:
    """tokenizer.json: all bytes, then pairs of letters as merges, then the end token."""
    pairs = list(islice(product(_PAIRED, repeat=2), size - _BYTES - 1))
    tokens = [*_byte_characters(), *(a + b for a, b in pairs), END]
    end = {"id": size - 1, "content": END, "special": True, "single_word": False, "lstrip": False,
           "rstrip": False, "normalized": False}  # fmt: skip
    bpe = {"type": "BPE", "vocab": {token: i for i, token in enumerate(tokens)},
           "merges": [[a, b] for a, b in pairs], "byte_fallback": False, "fuse_unk": False}  # fmt: skip
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": [end], "normalizer": None,
        "pre_tokenizer": level, "post_processor": None, "decoder": level, "model": bpe,
    }  # fmt: skip


def _byte_characters() -> list[str]:
    """One printable character per byte, as byte-level tokenizers name them: what prints stands for
    itself, the others follow from U+0100 on."""
    prints = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(_BYTES) if byte not in set(prints)]
    names = {byte: chr(byte) for byte in prints} | {b: chr(_BYTES + i) for i, b in enumerate(others)}
    return [names[byte] for byte in range(_BYTES)]


if __name__ == "__main__":
    write(Path(sys.argv[1]))

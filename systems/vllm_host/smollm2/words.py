"""Tokenizer and chat template of the model folder, from what a GGUF file says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from systems.vllm_host.smollm2.gguf import Gguf, GgufError

CONTROL = 3
"""Type of a token that is no text."""
PARSER = "hermes"
"""vLLM's name of what reads the tool calls of ``CHAT``."""
SOURCE = "source.json"
"""File of the folder: where it is from (package, file, its SHA-256, licence, quantisation), and ``PARSER`` as
``tool_parser``. Written last: a folder without it is not finished."""
_DEFAULT = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
CHAT = (
    "{% if messages[0]['role'] != 'system' or tools %}<|im_start|>system\n"
    "{% if messages[0]['role'] == 'system' %}{{ messages[0]['content'] or '' }}"
    "{% else %}" + _DEFAULT + "{% endif %}"
    "{% if tools %}{{ '\n\n' }}You can call these tools, one JSON object a line:\n<tools>\n"
    "{% for tool in tools %}{{ tool['function'] | tojson }}\n{% endfor %}</tools>\n"
    "To call one, answer with its name and arguments in this form and nothing else:\n"
    '<tool_call>\n{"name": "NAME", "arguments": {"ARGUMENT": "VALUE"}}\n</tool_call>{% endif %}'
    "<|im_end|>\n{% endif %}"
    "{% for m in messages %}{% if not (loop.first and tools and m['role'] == 'system') %}"
    "{{ '<|im_start|>' + m['role'] + '\n' + (m['content'] or '') }}"
    "{% for call in m['tool_calls'] or [] %}{% if loop.index > 1 or m['content'] %}{{ '\n' }}{% endif %}"
    '<tool_call>\n{"name": {{ call["function"]["name"] | tojson }}, "arguments": '
    "{% if call['function']['arguments'] is string %}{{ call['function']['arguments'] }}"
    "{% else %}{{ call['function']['arguments'] | tojson }}{% endif %}}\n</tool_call>{% endfor %}"
    "{{ '<|im_end|>\n' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
"""Chat template (Jinja): the package's, which knows no tools, and for requests with tools our own words
beside it, in the form that ``PARSER`` reads. Without tools and tool calls both say the same."""


def tokenizer(file: Gguf) -> dict[str, Any]:
    """tokenizer.json: byte-level BPE that takes every digit alone. Raises GgufError for another kind."""
    kind = file.value("tokenizer.ggml.model", str), file.value("tokenizer.ggml.pre", str)
    if kind != ("gpt2", "smollm"):
        raise GgufError(f"tokenizer.ggml.model and .pre are {kind}, known are gpt2 and smollm")
    tokens, types = file.texts("tokenizer.ggml.tokens"), file.value("tokenizer.ggml.token_type", list)
    if len(tokens) != len(types) or len(set(tokens)) != len(tokens):
        raise GgufError(f"{len(tokens)} tokens, {len(set(tokens))} different, with {len(types)} types")
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    digits = {"type": "Digits", "individual_digits": True}
    return {
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [_control(i, t) for i, t in enumerate(tokens) if types[i] == CONTROL],
        "normalizer": None, "pre_tokenizer": {"type": "Sequence", "pretokenizers": [digits, level]},
        "post_processor": None, "decoder": level,
        "model": {"type": "BPE", "vocab": {token: i for i, token in enumerate(tokens)},
                  "merges": _merges(file, set(tokens)), "byte_fallback": False, "fuse_unk": False},
    }  # fmt: skip


def _control(number: int, token: str) -> dict[str, Any]:
    plain = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return {"id": number, "content": token, "special": True, **plain}


def _merges(file: Gguf, tokens: set[str]) -> list[list[str]]:
    """Pairs, in the order in which they are tried. Byte characters are never spaces: one parts the two."""
    found = [merge.split(" ") for merge in file.texts("tokenizer.ggml.merges")]
    for number, pair in enumerate(found):
        if len(pair) != 2 or not tokens.issuperset((*pair, "".join(pair))):
            said = " ".join(pair)
            raise GgufError(f"tokenizer.ggml.merges, number {number}: {said!r} merges no two tokens")
    return found


def tokenizer_config(file: Gguf, context: int) -> dict[str, Any]:
    """tokenizer_config.json; ``context``: longest sequence (tokens)."""
    tokens = file.texts("tokenizer.ggml.tokens")
    named = {"bos_token": "bos", "eos_token": "eos", "unk_token": "unknown", "pad_token": "padding"}
    ends: Mapping[str, str] = {
        name: _token(tokens, file.value(f"tokenizer.ggml.{theirs}_token_id", int), theirs)
        for name, theirs in named.items()
    }
    return {
        "tokenizer_class": "PreTrainedTokenizerFast", **ends, "chat_template": CHAT,
        "model_max_length": context, "clean_up_tokenization_spaces": False, "add_bos_token": False,
    }  # fmt: skip


def _token(tokens: list[str], number: int, name: str) -> str:
    if not 0 <= number < len(tokens):
        raise GgufError(f"tokenizer.ggml.{name}_token_id is {number}, there are {len(tokens)} tokens")
    return tokens[number]

"""What llama.cpp says of SmolLM2 (tests/data/smollm2_llamacpp.json): tokens of awkward strings, greedy texts.

    python -m tests.live.smollm2_oracle WHEEL

Run once, in an environment with numpy and xllamacpp (llama.cpp as a wheel); nothing of it is needed later.
Texts are asked for twice. ``exact``: of the file's numbers written as float32, which is what vLLM computes
with. ``quantised``: of the file as it is, where llama.cpp also rounds activations to 8 bits: another
computation, whose texts part from the exact ones sooner or later.
"""

from __future__ import annotations

import json
import sys
import tempfile
import urllib.request
from importlib.metadata import version
from pathlib import Path
from random import Random

from systems.vllm_host.smollm2.gguf import Gguf
from systems.vllm_host.smollm2.package import found
from systems.vllm_host.smollm2.weights import numbers
from tests.gguf_files import F32, I32, U32, f32, gguf

RESULT = Path(__file__).parents[1] / "data" / "smollm2_llamacpp.json"
TOKENS, RANDOM, SEED = 40, 100, 7
PROMPTS = [
    "The capital of France is", "Once upon a time, in a small village,", "def fibonacci(n):\n",
    "Water boils at", "1, 2, 3, 4,",
]  # fmt: skip
QUESTIONS = [
    "What is the capital of France?", "Write one sentence about the sea.", "Add 2 and 3.",
    "Name three colours.",
]  # fmt: skip
STRINGS = [
    "", "Hello world", "  leading spaces", "trailing  ", "a\n\n\nb", "tabs\t\tx", "1234567890",
    "3.14159 and 2,718", "x=1;y=22", "don't I'll we've THEY'RE", "naïve café Zoë", "日本語のテキスト",
    "Привет, мир", "🙂🚀👩\u200d👩\u200d👧", "\x01\x02\x7f", "mixed123abc456", "١٢٣ Ⅷ ½ ²", "a  b   c    d",
    "\r\n\r\n", "\u00a0nbsp\u2003em", "if (x>0) {\n    return x*2;\n}", "<|im_start|>user\nhi<|im_end|>\n",
    '<tool_call>{"name": "f"}</tool_call>', "한국어 텍스트", "עברית", "\u200b\ufeff", "e\u0301",
    "'s 't 'RE 'S", "   \n  \n x", "_under_score__", "https://example.org/a?b=1&c=%20", "\ufb00 ligature",
    "\U0001d518\U0001d52b\U0001d526", "\U0010ffff end", "ÿþ", "<|im_end|><|endoftext|> a<file_sep>",
]  # fmt: skip
_POOL = "abc XYZ 019 \n\t.,'\"éß漢🙂١½<|>_ "


def strings():
    """Chosen ones, and seeded mixtures."""
    rng = Random(SEED)
    mixed = ["".join(rng.choice(_POOL) for _ in range(rng.randint(1, 40))) for _ in range(RANDOM)]
    return STRINGS + mixed


def exact(data):
    """The file with every number as float32."""
    file = Gguf.of(data)
    return gguf(
        {key: written(value) for key, value in file.said.items()},
        {name: f32(numbers(file, tensor)) for name, tensor in file.tensors.items()},
    )


def written(value):
    """As the file has it: numbers of 32 bits, those in arrays with a sign."""
    if isinstance(value, list):
        return [I32(one) if isinstance(one, int) else one for one in value]
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value
    return U32(value) if isinstance(value, int) else F32(value)


class Llama:
    """llama.cpp's server, in this process, one thread."""

    def __init__(self, data, folder):
        import xllamacpp

        path = Path(folder) / "model.gguf"
        path.write_bytes(data)
        options = xllamacpp.CommonParams()
        options.model.path, options.port, options.n_ctx, options.n_parallel = str(path), 0, 2048, 1
        options.cpuparams.n_threads = options.cpuparams_batch.n_threads = 1
        options.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
        self.server = xllamacpp.Server(options)

    def ask(self, path, **body):
        request = urllib.request.Request(
            f"{self.server.listening_address}{path}",
            json.dumps(body).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=300) as answer:
            return json.load(answer)

    def tokens(self, text):
        return self.ask("/tokenize", content=text, add_special=False, parse_special=True)["tokens"]

    def greedy(self, path, **body):
        return self.ask(path, temperature=0, top_k=1, repeat_penalty=1.0, cache_prompt=False, **body)

    def texts(self):
        """Of prompts, then of questions."""
        plain = [self.greedy("/completion", prompt=p, n_predict=TOKENS)["content"] for p in PROMPTS]
        asked = ([{"role": "user", "content": question}] for question in QUESTIONS)
        chats = [self.greedy("/v1/chat/completions", messages=m, max_tokens=TOKENS) for m in asked]
        return plain + [chat["choices"][0]["message"]["content"] for chat in chats]


def main(wheel):
    model, asked = found(Path(wheel)), strings()
    said = {"runtime": f"xllamacpp {version('xllamacpp')}", "sha256": model.sha256, "max_tokens": TOKENS}
    for name, data in (("exact", exact(model.data)), ("quantised", model.data)):
        with tempfile.TemporaryDirectory() as folder:
            llama = Llama(data, folder)
            said[name] = llama.texts()
            tokens = [llama.tokens(text) for text in asked]
            assert said.setdefault("tokens", tokens) == tokens
            del llama
    said |= {"prompts": PROMPTS, "questions": QUESTIONS, "strings": asked}
    RESULT.write_text(json.dumps(said, indent=0, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])

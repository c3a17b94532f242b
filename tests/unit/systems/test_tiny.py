"""The tiny model's folder: the same bytes each time, tensors where the header says, ids that come back."""

import errno
import json
import struct
from pathlib import Path

import pytest

from systems.vllm_host.tiny import END, TinyLlama, write

SMALL = TinyLlama(layers=1, width=64, inner=64, heads=2, kv_heads=1, vocabulary=300)


def test_the_same_bytes_twice_and_others_for_another_seed(tmp_path):
    one, two = (write(tmp_path / name, SMALL) for name in "ab")
    for file in one.iterdir():
        assert file.read_bytes() == (two / file.name).read_bytes()
    other = write(tmp_path / "c", TinyLlama(**{**SMALL.__dict__, "seed": 2}))
    assert (other / "model.safetensors").read_bytes() != (one / "model.safetensors").read_bytes()


def test_every_tensor_is_where_the_header_says(tmp_path):
    data = (write(tmp_path, SMALL) / "model.safetensors").read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8 : 8 + size])
    assert {name: tuple(t["shape"]) for name, t in header.items()} == dict(SMALL.tensors())
    assert sorted(t["data_offsets"][0] for t in header.values())[0] == 0
    assert max(t["data_offsets"][1] for t in header.values()) == len(data) - 8 - size
    for tensor in header.values():
        rows, *columns = tensor["shape"]
        begin, end = tensor["data_offsets"]
        assert end - begin == 2 * rows * (columns[0] if columns else 1)


def weights(data, tensor):
    begin, end = tensor["data_offsets"]
    words = struct.unpack(f"<{(end - begin) // 2}H", data[begin:end])
    return [struct.unpack("<f", struct.pack("<I", word << 16))[0] for word in words]


def test_a_row_times_unit_variance_has_about_unit_variance(tmp_path):
    data = (write(tmp_path, TinyLlama()) / "model.safetensors").read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header, body = json.loads(data[8 : 8 + size]), data[8 + size :]
    for name in ("model.layers.0.self_attn.q_proj.weight", "model.layers.3.mlp.down_proj.weight"):
        tensor = header[name]
        found = weights(body, tensor)
        variance = sum(w * w for w in found) / len(found) * tensor["shape"][1]
        assert 0.25 < variance < 4.0
        assert abs(sum(w > 0 for w in found) / len(found) - 0.5) < 0.02
    assert set(weights(body, header["model.norm.weight"])) == {1.0}


def test_text_comes_back_and_the_last_id_ends(tmp_path):
    tokenizers = pytest.importorskip("tokenizers")
    tokenizer = tokenizers.Tokenizer.from_file(str(write(tmp_path) / "tokenizer.json"))
    text = "the inn at 10, größe\n"
    ids = tokenizer.encode(text).ids
    assert tokenizer.decode(ids) == text
    assert len(ids) < len(text.encode())
    assert tokenizer.get_vocab_size() == TinyLlama().vocabulary
    assert tokenizer.token_to_id(END) == TinyLlama().config()["eos_token_id"]


def test_a_chat_becomes_a_prompt(tmp_path):
    jinja2 = pytest.importorskip("jinja2")
    template = json.loads((write(tmp_path, SMALL) / "tokenizer_config.json").read_text())["chat_template"]
    said = [{"role": "user", "content": "how?"}, {"role": "assistant", "content": None}]
    render = jinja2.Environment().from_string(template).render
    assert render(messages=said, add_generation_prompt=True) == "user: how?\nassistant: \nassistant:"
    assert render(messages=said[:1]) == "user: how?\n"


def test_a_prompt_has_the_tools_and_what_became_of_them(tmp_path):
    jinja2 = pytest.importorskip("jinja2")
    template = json.loads((write(tmp_path, SMALL) / "tokenizer_config.json").read_text())["chat_template"]
    calls = [{"id": "c1", "type": "function", "function": {"name": "ls", "arguments": {"path": "/tmp"}}}]
    said = [
        {"role": "user", "content": "what is there?"},
        {"role": "assistant", "content": "I look.", "tool_calls": calls},
        {"role": "tool", "tool_call_id": "c1", "content": "a.txt"},
    ]
    tools = [{"type": "function", "function": {"name": "ls"}}]
    assert jinja2.Environment().from_string(template).render(
        messages=said, tools=tools, add_generation_prompt=True
    ) == (
        'tools:\n{"function": {"name": "ls"}, "type": "function"}\nuser: what is there?\n'
        'assistant: I look.\ncall ls {"path": "/tmp"}\ntool: a.txt\nassistant:'
    )


def test_a_model_without_an_end_says_text_only(tmp_path):
    endless = TinyLlama(**{**SMALL.__dict__, "ends": False, "context": 32768})
    one, two = write(tmp_path / "a", SMALL), write(tmp_path / "b", endless)
    assert (one / "tokenizer.json").read_bytes() == (two / "tokenizer.json").read_bytes()
    read = {name: json.loads((two / f"{name}.json").read_text()) for name in ("config", "tokenizer_config")}
    assert read["config"]["eos_token_id"] is None
    assert read["config"]["max_position_embeddings"] == 32768
    assert "eos_token" not in read["tokenizer_config"]
    assert read["tokenizer_config"]["model_max_length"] == 32768
    usual, plain = ((folder / "model.safetensors").read_bytes() for folder in (one, two))
    assert len(usual) == len(plain)
    silent = {row for row in range(300) if not any(plain[len(plain) - (300 - row) * 128 :][:128])}
    assert silent == {*range(128, 256), 299}
    kept = [at for at in range(300) if at not in silent]
    for folder_rows in (usual, plain):
        assert all(any(folder_rows[len(plain) - (300 - row) * 128 :][:128]) for row in kept)
    assert usual[: len(usual) - 300 * 128] == plain[: len(plain) - 300 * 128]


@pytest.mark.parametrize("wrong", [{"heads": 3}, {"kv_heads": 3}, {"vocabulary": 256}, {"vocabulary": 5000}])
def test_sizes_that_cannot_be(wrong):
    with pytest.raises(ValueError, match=r"must be"):
        TinyLlama(**wrong)


def test_a_full_disk_says_which_folder(tmp_path, monkeypatch):
    def full(self, data):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match="No space left") as caught:
        write(tmp_path / "m", SMALL)
    assert caught.value.filename == str(tmp_path / "m")

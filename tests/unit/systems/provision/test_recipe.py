"""What is shown of a server: its command line, and the line of its output that tells something."""

from pathlib import Path

import pytest

from systems.engines.vllm_virtual import EngineUnavailable
from systems.provision.process import free_port
from systems.provision.recipe import asked, healthy, hidden, told
from tests.unit.systems.provision.fakes import answering

TRACEBACK = """
(EngineCore pid=7) ERROR 11-30 08:26:36 [core.py:1510] ValueError: KV cache is needed
(APIServer pid=6) INFO 11-30 08:26:37 shutting down
Traceback (most recent call last):
    raise ValueError(
ValueError: To serve at least one request with the model's max seq len (4096), 0.02 GiB KV cache is needed
    raise RuntimeError(
RuntimeError: Engine core initialization failed. See root cause above.
UserWarning: there appear to be 1 leaked shared_memory objects
"""


@pytest.mark.parametrize(
    ("text", "last"),
    [
        (TRACEBACK, "ValueError: To serve at least one request"),
        ("loading\nOSError in a log line: port taken\nbye", "OSError in a log line"),
        ("torch.OutOfMemoryError: CUDA out of memory\nbye\n\n", "torch.OutOfMemoryError: CUDA"),
        ("loading\nusage: api_server.py", "usage: api_server.py"),
        ("", "nothing"),
    ],
)
def test_last_words(text, last):
    assert told(text, Path("server.log")).startswith(f"its last words: {last}")


def test_secrets_are_hidden_and_numbers_of_tokens_are_not():
    words = ["--api-key", "a", "b", "--max-tokens", "16", "--hf_token=x", "--key", "--other", "say hf_1"]
    assert hidden(words, ["hf_1", ""]) == [
        "--api-key", "***", "***", "--max-tokens", "16", "--hf_token=***", "--key", "--other", "say ***",
    ]  # fmt: skip


def test_questions_to_a_server():
    with answering({"/health": "", "/a": {"b": 1}, "/text": "no json"}) as url:
        assert healthy(url)
        assert asked(url, "/a") == {"b": 1}
        with pytest.raises(EngineUnavailable, match=r"/text does not answer with JSON"):
            asked(url, "/text")
        with pytest.raises(EngineUnavailable, match=r"/c answers 404"):
            asked(url, "/c")
    assert not healthy(url)
    assert not healthy(f"http://127.0.0.1:{free_port()}")
    assert not healthy("nonsense")

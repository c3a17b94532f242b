"""Where models come from: the cache, and whether there is a token. Its value is never read out."""

from __future__ import annotations

from pathlib import Path

from bench.doctor.check import MISSING, OK, Finding, Here, Simple


def _look(here: Here) -> Finding:
    home = Path(here.environ.get("HF_HOME") or Path(here.environ.get("HOME", "/")) / ".cache" / "huggingface")
    cache = Path(here.environ.get("HF_HUB_CACHE") or home / "hub")
    models = len(list(cache.glob("models--*"))) if cache.is_dir() else 0
    named = [name for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN") if here.environ.get(name)]
    token = named[0] if named else "a token file" if (home / "token").is_file() else ""
    text = f"{models} models in the cache, {token or 'no token'}"
    if not token:
        return Finding(MISSING, text, "set HF_TOKEN for gated models (the tiny test model needs none)")
    return Finding(OK, text)


CHECK = Simple("huggingface", 24, _look)

"""Small Weka sessions for tests."""

import json
from pathlib import Path

SAMPLES = Path(__file__).parents[4] / "shared" / "data" / "weka"


def request(t=0.0, tokens=130, out=10, ids=None, **more):
    """One request; blocks are numbered from 1 unless ``ids`` says otherwise."""
    ids = list(range(1, tokens // 64 + 1)) if ids is None else ids
    return {"t": t, "type": "n", "in": tokens, "out": out, "hash_ids": ids, "stop": "tool_use",
            "api_time": 2.0, "think_time": 0.0, **more}  # fmt: skip


def subagent(t, requests, status="completed", **more):
    return {"t": t, "type": "subagent", "status": status, "requests": requests, **more}


def session(*requests, **more):
    return {"id": "s", "block_size": 64, "hash_id_scope": "local", "requests": list(requests), **more}


def write(folder: Path, name: str, document) -> Path:
    path = folder / name
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return path

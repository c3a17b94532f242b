"""How each real CLI is told, offline, to run one prompt against a base URL: its files, environment, command.

The CLIs are npm packages in a folder that BENCH_CLIENTS names (its ``node_modules``); docs/clients.md says
how to install them. Each runs in a home of its own, with nothing of ours in its environment.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from systems.provision.process import GUARD

FOLDER = "BENCH_CLIENTS"
PROMPT = "Use a shell command to read fruit.txt, then say what it says."
FRUIT = "pear\n"
KEY = "bench-key"
GRACE_S = 1.0
"""What a client leaves behind may take so long to end; it ends when we do (systems/provision/guard.py)."""


@dataclass(frozen=True)
class Started:
    """``words`` behind the program, ``env``: more variables."""

    words: tuple[str, ...]
    env: Mapping[str, str]


class How(NamedTuple):
    """``patience_s``: how long a stream may be silent, 0: the client's own; ``short``: as short a prompt as
    it can have."""

    patience_s: float = 0.0
    short: bool = False


@dataclass(frozen=True)
class Client:
    """``name`` of its program in ``node_modules/.bin``; ``package`` on npm; ``path``: what it calls.

    ``prepare``: (URL of a gateway without /v1, model, home, how) -> how it is started. ``patience``: its
    limit for a silent stream can be set.
    """

    name: str
    package: str
    path: str
    prepare: Callable[[str, str, Path, How], Started]
    patience: bool = False


@dataclass(frozen=True)
class Ended:
    """``code`` -1: it did not end in time, and was killed."""

    code: int
    output: str
    errors: str


def _claude(url: str, model: str, home: Path, how: How) -> Started:
    env = {
        "ANTHROPIC_BASE_URL": url, "ANTHROPIC_AUTH_TOKEN": KEY, "ANTHROPIC_MODEL": model,
        "ANTHROPIC_SMALL_FAST_MODEL": model, "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "CLAUDE_CONFIG_DIR": str(home / "claude"), "IS_SANDBOX": "1",
    }  # fmt: skip
    less = ("--tools", "Bash", "--system-prompt", "Use tools.") if how.short else ()
    return Started(("-p", PROMPT, "--allowedTools", "Bash", *less), env)


def _codex(url: str, model: str, home: Path, how: How) -> Started:
    folder = home / "codex"
    folder.mkdir()
    patience = f"stream_idle_timeout_ms = {how.patience_s * 1000:.0f}\n" if how.patience_s else ""
    (folder / "config.toml").write_text(
        f'model = "{model}"\nmodel_provider = "bench"\n[model_providers.bench]\nname = "bench"\n'
        f'base_url = "{url}/v1"\nwire_api = "responses"\nenv_key = "BENCH_KEY"\n{patience}'
    )
    words = ("exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", PROMPT)
    return Started(words, {"CODEX_HOME": str(folder), "BENCH_KEY": KEY})


def _opencode(url: str, model: str, home: Path, how: How) -> Started:
    options: dict[str, Any] = {"baseURL": f"{url}/v1", "apiKey": KEY}
    if how.patience_s:
        options["chunkTimeout"] = round(how.patience_s * 1000)
    provider = {
        "npm": "@ai-sdk/openai-compatible", "name": "bench", "options": options, "models": {model: {}},
    }  # fmt: skip
    config = {
        "provider": {"bench": provider}, "model": f"bench/{model}", "small_model": f"bench/{model}",
        "autoupdate": False, "share": "disabled", "permission": {"bash": "allow"},
    }  # fmt: skip
    (home / "opencode.json").write_text(json.dumps(config))
    return Started(("run", PROMPT), {
        "OPENCODE_CONFIG": str(home / "opencode.json"), "OPENCODE_DISABLE_AUTOUPDATE": "1",
        "OPENCODE_DISABLE_MODELS_FETCH": "1", "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
        "OPENCODE_DISABLE_DEFAULT_PLUGINS": "1",
    })  # fmt: skip


CLIENTS = (
    Client("claude", "@anthropic-ai/claude-code", "/v1/messages", _claude),
    Client("codex", "@openai/codex", "/v1/responses", _codex, patience=True),
    Client("opencode", "opencode-ai", "/v1/chat/completions", _opencode, patience=True),
)


def program(client: Client) -> Path | None:
    """Where it is installed, None if it is not."""
    folder = os.environ.get(FOLDER, "")
    path = Path(folder, "node_modules", ".bin", client.name)
    return path if folder and path.exists() else None


def version(client: Client) -> str:
    """Of the installed package; "" if it is not there."""
    manifest = Path(os.environ.get(FOLDER, ""), "node_modules", client.package, "package.json")
    return str(json.loads(manifest.read_text())["version"]) if manifest.is_file() else ""


def run(
    client: Client, url: str, folder: Path, model: str = "scripted", limit_s: float = 60.0, **how: Any
) -> Ended:
    """One prompt in a fresh ``folder``; all its processes are gone afterwards. ``how``: fields of ``How``.

    Raises FileNotFoundError if it is not installed.
    """
    path = program(client)
    if path is None:
        raise FileNotFoundError(f"{client.name} is not in {FOLDER} ({client.package} from npm)")
    home, work = folder / "home", folder / "work"
    for one in (home, work):
        one.mkdir(parents=True)
    (work / "fruit.txt").write_text(FRUIT)
    started = client.prepare(url.rstrip("/"), model, home, How(**how))
    env = {
        "PATH": os.environ["PATH"], "HOME": str(home), "TMPDIR": str(folder), "LANG": "C.UTF-8",
        "NO_COLOR": "1", "NO_PROXY": "127.0.0.1,localhost", **started.env,
    }  # fmt: skip
    guard = (sys.executable, "-I", "-S", str(GUARD), str(os.getpid()), str(GRACE_S))
    process = subprocess.Popen(
        [*guard, path.resolve(), *started.words], cwd=work, env=env, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    try:
        output, errors = process.communicate(timeout=limit_s)
        return Ended(process.returncode, output, errors)
    except subprocess.TimeoutExpired:
        _kill(process.pid)
        output, errors = process.communicate()
        return Ended(-1, output, errors)
    finally:
        _kill(process.pid)


def _kill(group: int) -> None:
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        return

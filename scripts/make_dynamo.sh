#!/usr/bin/env bash
# Build a venv with NVIDIA Dynamo's runtime, for benchmarks/simulator.py: make_dynamo.sh [FOLDER], default .venv-dynamo.
# PYTHON names the interpreter (3.10 or newer). 250 MB, under a minute; does nothing if it is there already.
set -euo pipefail

VERSION=1.6.1
venv=${1:-.venv-dynamo}
stamp="$venv/.ai-dynamo-runtime-$VERSION"
python=${PYTHON:-python3}
export PIP_DISABLE_PIP_VERSION_CHECK=1

if [ -f "$stamp" ]; then
  echo "$venv has ai-dynamo-runtime $VERSION"
  exit 0
fi
echo "building $venv: ai-dynamo-runtime $VERSION, 250 MB"
"$python" -m venv --clear "$venv"
log="$venv/install.log"
if ! "$venv/bin/python" -m pip install "ai-dynamo-runtime==$VERSION" >"$log" 2>&1 ||
  ! "$venv/bin/python" -c 'from dynamo._core import run_mocker_trace_replay' 2>>"$log"; then
  tail -n 3 "$log" >&2
  mv "$log" "$venv.log"
  rm -rf "$venv"  # half an environment would look like one
  echo "ai-dynamo-runtime $VERSION does not install here (see $venv.log); benchmarks/simulator.py needs it" >&2
  exit 6
fi
touch "$stamp"
echo "$venv is ready"

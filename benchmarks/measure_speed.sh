#!/usr/bin/env bash
# All figures of README.md's "Speed" on a quiet machine: measure_speed.sh [FOLDER], default build/speed. 6 to 7 minutes.
# Builds what is missing (Dynamo's environment, a compiled simulator) inside FOLDER only.
# DYNAMO and CYTHON name Pythons that have ai-dynamo-runtime and Cython already. TRACE: a Mooncake trace.
set -euo pipefail
cd "$(dirname "$0")/.."

folder=$(realpath -m "${1:-build/speed}")
python=${PYTHON:-$PWD/.venv/bin/python}
trace=${TRACE:-../shared/data/mooncake/conversation_trace.jsonl}
mkdir -p "$folder"
if [ -z "${DYNAMO:-}" ]; then
  PYTHON="$python" bash scripts/make_dynamo.sh "$folder/dynamo"
  DYNAMO="$folder/dynamo/bin/python"
fi
if [ -z "${CYTHON:-}" ]; then
  [ -x "$folder/cython/bin/python" ] || "$python" -m venv "$folder/cython"
  "$folder/cython/bin/python" -m pip install --quiet 'cython>=3.1' 'setuptools>=77'
  CYTHON="$folder/cython/bin/python"
fi
export BENCH_NATIVE="$folder/native"
"$CYTHON" scripts/build_native.py

measure() { "$python" benchmarks/simulator.py --python "$DYNAMO" "$@"; }
uptime
echo "== speed1, the same step times"
measure --repeat 9
echo "== speed1, every scheduler that Autellix compares"
measure --repeat 3 --scheduler srpt --scheduler plas --scheduler atlas --scheduler mlfq --scheduler round-robin
echo "== speed1, event log on disk"
measure --repeat 5 --log
echo "== speed1, each with its own step times"
measure --repeat 5 --own-times
if [ -f "$trace" ]; then
  echo "== Mooncake conversations, first 2000 rows"
  measure --repeat 5 --trace "$trace"
fi
echo "== speed1 with the A100 table, CPU time"
"$python" benchmarks/compiled.py --repeat 5 --scheduler fcfs --scheduler srpt --scheduler plas --scheduler atlas \
  --scheduler mlfq --scheduler round-robin --scheduler job-fcfs
uptime

#!/usr/bin/env bash
# The gate of our own CI, made of `bench compare`.
#
# First the gate itself: the same code on two sets of seeds is no regression, steps that take
# 10 % longer are one. Then, with BASE=COMMIT, this tree against that commit on the same seeds:
# a regression, or results that cannot be compared, fail.
set -euo pipefail
cd "$(dirname "$0")/.."

python=$PWD/.venv/bin/python
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

bench() { "$python" -m bench.cli.main "$@"; }

# run NAME ARGUMENTS...: eight seeds of a small, loaded run of the tree we are in, results in $out/NAME
run() {
  local name=$1
  shift
  bench run --system atlas --workload chatbot -n 60 --rate 2 -p token_scale=1/4 --seeds 8 \
    --knob engine.max_num_seqs=8 --out "$out/$name" --json "$@" > "$out/$name.json"
}

# expect "CODES" WHAT ARGUMENTS...: one of these exit codes, or the comparison is printed and we fail
expect() {
  local codes=$1 what=$2 code=0
  shift 2
  bench compare "$@" > "$out/page" 2>&1 || code=$?
  if [[ " $codes " != *" $code "* ]]; then
    cat "$out/page"
    echo "gate: $what: exit $code, expected one of: $codes" >&2
    exit 1
  fi
  echo "gate: $what: exit $code, as it should"
}

run new
run other-seeds --seed 101
run slower --knob latency.prefill=1.1 --knob latency.decode=1.1 --knob latency.overhead=1.1

expect "0 5" "A/A on disjoint seeds" "$out/new" "$out/other-seeds" --unpaired
expect "2" "other step times are refused" "$out/new" "$out/slower"
expect "3" "steps 10 % longer" "$out/new" "$out/slower" --allow engine

if [[ -n ${BASE:-} ]]; then
  mkdir "$out/tree"
  git archive "$BASE" | tar -x -C "$out/tree"
  (cd "$out/tree" && run base)
  expect "0 5" "this tree against $BASE" "$out/base" "$out/new" --markdown "$out/comment.md"
  cat "$out/page"
  if [[ -n ${GITHUB_STEP_SUMMARY:-} ]]; then cat "$out/comment.md" >> "$GITHUB_STEP_SUMMARY"; fi
fi

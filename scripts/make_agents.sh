#!/usr/bin/env bash
# Build a venv with the agents that are guests here: make_agents.sh [FOLDER], default .venv-agents.
# mini-swe-agent and openai-agents (the extra `agents`), and LangGraph for docs/examples; what runs them is
# this checkout, by PYTHONPATH. PYTHON names the interpreter (3.11 or newer). 330 MB, half a minute; does
# nothing if it is there already.
set -euo pipefail

GUESTS="mini-swe-agent==2.4.6 openai-agents==0.24.0 langgraph==1.2.24 langchain-openai==1.7.4"
HOST="aiohttp>=3.10 docker>=7.1 orjson>=3.9"
# Dependencies for what is not used here: data sets, a terminal interface, a cloud's client, tokenizers of
# Hugging Face. They are 340 MB, and the guests' loops do not import them.
WITHOUT="datasets textual prompt_toolkit boto3 tokenizers huggingface-hub hf-xet"
venv=${1:-.venv-agents}
stamp="$venv/.agents-$(echo "$GUESTS" | cksum | cut -d ' ' -f 1)"
here=$(dirname "$0")
python=${PYTHON:-python3}
export PIP_DISABLE_PIP_VERSION_CHECK=1

if [ -f "$stamp" ]; then
  echo "$venv has $GUESTS"
  exit 0
fi
if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
  echo "the agents need Python 3.11 or newer, and $python is not; name one: PYTHON=python3.12 bash $0" >&2
  exit 6
fi

echo "building $venv: $GUESTS, half a minute and 330 MB"
# The harness's environment has pip, and uv; without it, this one gets them.
if [ -x "$here/../.venv/bin/python" ]; then
  installer="$here/../.venv/bin/python"
  "$python" -m venv --clear --without-pip "$venv"
else
  installer="$venv/bin/python"
  "$python" -m venv --clear "$venv"
fi
"$installer" "$here/install.py" --python "$venv/bin/python" $(printf -- '--without %s ' $WITHOUT) $GUESTS $HOST

# What the guests import is compiled once, even where PYTHONDONTWRITEBYTECODE is set: litellm takes 11 s, so 5.5.
PYTHONDONTWRITEBYTECODE= LITELLM_LOCAL_MODEL_COST_MAP=True MSWEA_SILENT_STARTUP=1 \
  MSWEA_GLOBAL_CONFIG_DIR="$venv/config" OPENAI_AGENTS_DISABLE_TRACING=1 "$venv/bin/python" -c '
import agents, aiohttp, docker, langchain_openai, langgraph.graph, litellm, orjson
import minisweagent.agents.default, minisweagent.models.litellm_model
litellm.completion("openai/m", [{"role": "user", "content": "hi"}], mock_response="hi")
' >"$venv/import.log" 2>&1 || {
  tail -n 5 "$venv/import.log" >&2
  echo "the agents are installed in $venv but cannot be imported; all of it: $venv/import.log" >&2
  exit 6
}
touch "$stamp"
echo "$venv is ready"

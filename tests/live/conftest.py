"""Live tests fail where they cannot run. Only who says so, in the environment, leaves a part of them out."""

import os

import pytest

from bench.live import drive

WITHOUT_DOCKER = "BENCH_WITHOUT_DOCKER"
CLIENTS = "BENCH_CLIENTS"
GENUINE = "BENCH_SMOLLM2"


@pytest.fixture(autouse=True)
def _patient(monkeypatch):
    """Other tests and engines share the cores: a client that is late says something of them only."""
    monkeypatch.setattr(drive, "ATTEMPTS", 10)


def pytest_configure(config):
    config.addinivalue_line("markers", "docker: needs a Docker engine, which scripts/with_dockerd.sh starts")
    config.addinivalue_line("markers", "clients: needs real CLIs, in the folder that BENCH_CLIENTS names")
    config.addinivalue_line("markers", "genuine: needs the wheel that BENCH_SMOLLM2 names, SmolLM2-135M")


def pytest_report_header(config):
    docker = f"{WITHOUT_DOCKER} is set: tests of Docker are left out"
    clients = f"{CLIENTS} is not set: tests of real CLIs are left out (docs/clients.md)"
    lines = [docker] if os.environ.get(WITHOUT_DOCKER) else []
    genuine = f"{GENUINE} is not set: tests of a genuine model are left out (docs/genuine-model.md)"
    lines += [] if os.environ.get(GENUINE) else [genuine]
    return lines if os.environ.get(CLIENTS) else [*lines, clients]


def pytest_collection_modifyitems(config, items):
    without = ["docker"] if os.environ.get(WITHOUT_DOCKER) else []
    without += [] if os.environ.get(CLIENTS) else ["clients"]
    without += [] if os.environ.get(GENUINE) else ["genuine"]
    left_out = [item for item in items if any(item.get_closest_marker(one) for one in without)]
    if not left_out:
        return
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]

"""Live tests fail where they cannot run. Only who says so, in the environment, leaves a part of them out."""

import os

WITHOUT_DOCKER = "BENCH_WITHOUT_DOCKER"


def pytest_configure(config):
    config.addinivalue_line("markers", "docker: needs a Docker engine, which scripts/with_dockerd.sh starts")


def pytest_report_header(config):
    if os.environ.get(WITHOUT_DOCKER):
        return f"{WITHOUT_DOCKER} is set: tests of Docker are left out"
    return None


def pytest_collection_modifyitems(config, items):
    if not os.environ.get(WITHOUT_DOCKER):
        return
    left_out = [item for item in items if item.get_closest_marker("docker")]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]

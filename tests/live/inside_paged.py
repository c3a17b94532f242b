"""What test_paged_engine runs under a Python with PyTorch: the check, and the check of the check.

Prints JSON: a verdict per policy and kind of memory; or, where pages lose what they hold when a call
takes them over, either the verdicts or what the check said.
"""

import json
import sys
from dataclasses import asdict

import torch

from benchmarks.paged_engine.check import check
from benchmarks.paged_engine.engine import PagedEngine


class Emptied(PagedEngine):
    """Pages that a call shares are wiped, and known to be."""

    known = True

    def admit(self, job, prefix, now):
        for block in prefix.hits:
            page = self.execution._page[block]
            self.execution.model.cache[:, :, page] = 0.0
            if self.known:
                self.execution.filled[block] = 0
        super().admit(job, prefix, now)


class Forgotten(Emptied):
    """Pages that a call shares are wiped in silence: a check must find that out."""

    known = False


def main():
    torch.set_num_threads(1)
    found = {"all": [asdict(verdict) for verdict in check()]}
    found["emptied"] = [asdict(verdict) for verdict in check("cpu", ["plas"], Emptied)]
    try:
        found["forgotten"] = [asdict(verdict) for verdict in check("cpu", ["plas"], Forgotten)]
    except AssertionError as error:
        found["forgotten"] = str(error)
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()

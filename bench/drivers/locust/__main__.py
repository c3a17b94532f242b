"""A process of the Locust driver: ``python -m bench.drivers.locust [--join HOST:PORT]``.

Without ``--join`` it reads one ``Job`` from stdin, is the master of its workers (or does the run itself
if there is one worker) and tells stdout what happens, a JSON object per line. With it, it is a worker.
"""

import locust  # noqa: F401  # isort: skip  # patches the standard library before anything else loads

from bench.drivers.locust.process import main

if __name__ == "__main__":
    main()

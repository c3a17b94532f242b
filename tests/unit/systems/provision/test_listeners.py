"""Who listens on a port, while that process opens and closes other files."""

import os
import socket
import threading

from systems.provision.process import listeners


def test_a_process_that_closes_files_meanwhile_is_still_seen():
    stop = threading.Event()

    def churn():
        while not stop.is_set():
            for file in [os.open("/dev/null", os.O_RDONLY) for _ in range(20)]:
                os.close(file)

    with socket.create_server(("127.0.0.1", 0)) as server:
        busy = threading.Thread(target=churn)
        busy.start()
        try:
            seen = [listeners(server.getsockname()[1]) for _ in range(20)]
        finally:
            stop.set()
            busy.join()
    assert [os.getpid() in found for found in seen] == [True] * 20

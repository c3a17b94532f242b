"""Servers that are none: an interpreter that runs a script in place of any module, and scripts for it."""

import contextlib
import http.server
import json
import stat
import sys
import threading
import time
from pathlib import Path

HEALTHY = """
import http.server, os, subprocess, sys
port = int(args[args.index("--port") + 1])
print("child", subprocess.Popen(["sleep", "60"]).pid, flush=True)
class Ok(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers()
    def log_message(self, *_): pass
http.server.HTTPServer(("127.0.0.1", port), Ok).serve_forever()
"""
CHILDLESS = HEALTHY.replace('print("child", subprocess.Popen(["sleep", "60"]).pid, flush=True)', "")
"""Ends at once when it is asked to: its child would have to be waited for."""
SILENT = "import time; print('loading', flush=True); time.sleep(60)"
DYING = 'print("ValueError: no such model"); print("see above"); sys.exit(3)'


def python(folder, script):
    """An interpreter that runs ``script`` in place of any module, and code (-c) as Python does."""
    path, real = folder / "python", sys.executable
    path.write_text(
        f"#!{real}\nimport os, sys\nargs = sys.argv[1:]\n"
        f"if args[0] == '-c': os.execv({real!r}, [{real!r}, *args])\n{script}\n"
    )
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def gone(pid):
    """Whether a process is gone (a zombie nobody has waited for is)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def eventually(condition, limit_s=15.0):
    until = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.01)


@contextlib.contextmanager
def answering(answers, seen=None):
    """An HTTP server in a thread: path -> text, object (JSON) or status code; 404 for the rest. Its URL."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            if seen is not None:
                seen.append((self.path, self.headers.get("Authorization")))
            answer = answers.get(self.path, 404)
            self.send_response(answer if isinstance(answer, int) else 200)
            self.end_headers()
            if not isinstance(answer, int):
                self.wfile.write((answer if isinstance(answer, str) else json.dumps(answer)).encode())

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()

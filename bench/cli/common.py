"""What every verb shares: errors as one line and an exit code, and output as a page or as JSON."""

from __future__ import annotations

import contextlib
import errno
import functools
import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, ParamSpec

import typer

from bench.errors import BenchError, Exit

P = ParamSpec("P")

Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a page.")]


def _folder(text: str | Path) -> Path:
    if not str(text).strip():
        raise typer.BadParameter("must name a folder; . is the current one")
    return Path(text)


Out = Annotated[Path, typer.Option(metavar="FOLDER", parser=_folder, help="Folder of results.")]
Seed = Annotated[int, typer.Option(help="Seed of programs and arrivals.")]
Params = Annotated[
    list[str] | None,
    typer.Option("-p", "--param", metavar="NAME=VALUE", help="A workload parameter (repeatable)."),
]
Programs = Annotated[
    int | None,
    typer.Option("--n", "-n", help="Programs; default 700 generated, or the whole trace (p99 needs 662)."),
]
DEBUG = "BENCH_DEBUG"


GOES_ON = "interrupted; the same command goes on from here"
STARTS_OVER = "interrupted; the same command starts over"


def fresh_verb(command: Callable[P, None]) -> Callable[P, None]:
    """A ``verb`` that keeps nothing of a run that is interrupted."""
    return verb(command, STARTS_OVER)


def verb(command: Callable[P, None], interrupted: str = GOES_ON) -> Callable[P, None]:
    """A verb whose errors become a line on stderr and an exit code, never a traceback.

    With BENCH_DEBUG set, internal errors keep theirs. ``interrupted``: what Ctrl-C means for what was done.
    """

    @functools.wraps(command)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            command(*args, **kwargs)
            sys.stdout.flush()
        except BenchError as error:
            fail(str(error), error.exit_code)
        except KeyboardInterrupt:
            fail(interrupted, Exit.INTERRUPTED)
        except BrokenPipeError:
            sys.stderr.close()
            raise typer.Exit(Exit.OK) from None
        except MemoryError:
            fail("out of memory: lower --n", Exit.MISSING)
        except OSError as error:
            if stdout_is_full(error):
                raise typer.Exit(int(Exit.MISSING)) from None
            if isinstance(error, PermissionError) and error.filename is not None:
                _not_permitted(error, kwargs.get("out"))
            _internal(error)
        except (typer.Exit, typer.Abort, typer.BadParameter):
            raise
        except Exception as error:
            _internal(error)
        except BaseException as error:  # SystemExit and its like, of the user's code: never exit code 0
            fail(f"a program or policy raised {type(error).__name__}({error})", Exit.INVALID_RUN)

    return guarded


def _not_permitted(error: PermissionError, out: object) -> None:
    """Say which path may not be used: 6 in the folder that results go to, 2 elsewhere."""
    from bench.files import beneath

    own = isinstance(out, Path) and beneath(error, out)
    fail(f"{error.filename}: {error.strerror}", Exit.MISSING if own else Exit.USAGE)


def _internal(error: Exception) -> None:
    """Say that it is our fault; called while ``error`` is handled."""
    if os.environ.get(DEBUG):
        raise error
    fail(f"internal error: {type(error).__name__}: {error} ({DEBUG}=1 shows where)", Exit.INTERNAL)


def stdout_is_full(error: OSError) -> bool:
    """Whether an I/O error that nobody explained is one of stdout; then it is said, and stdout closed."""
    if error.filename is not None or error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO):
        return False
    with contextlib.suppress(OSError, ValueError):  # or Python tries again when it ends, and complains
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    typer.echo(f"error: cannot write to stdout: {error.strerror}", err=True)
    return True


def fail(message: str, code: Exit) -> None:
    """Say what is wrong and leave."""
    typer.echo(f"error: {message}" if code != Exit.INTERRUPTED else message, err=True)
    raise typer.Exit(int(code))


def emit_json(data: Any) -> None:
    """Strict JSON on stdout."""
    from bench.files import plain

    typer.echo(json.dumps(plain(data), indent=1, allow_nan=False))


def page(renderable: Any) -> None:
    """A rich page on stdout; 110 columns where there is no terminal."""
    from rich.console import Console

    class Page(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError  # rich itself would end the process as if something had failed

    terminal = sys.stdout.isatty()
    Page(width=None if terminal else 110, highlight=False, soft_wrap=False).print(renderable)


PATIENCE = 5.0
"""Seconds a run may take without a progress bar."""


@contextmanager
def progress(label: str) -> Iterator[Callable[[int, int], None] | None]:
    """A callback (done, total) behind a bar on stderr; None where stderr is no terminal.

    The bar appears once the run is expected to take more than PATIENCE seconds in all.
    """
    if not sys.stderr.isatty():
        yield None
        return
    bar = _Bar(label)
    try:
        yield bar
    finally:
        bar.stop()


class _Bar:
    def __init__(self, label: str) -> None:
        import time

        self._clock = time.monotonic
        self._label = label
        self._began = self._clock()
        self._next = self._began + 1.0
        self._bar: Any = None
        self._task: Any = None

    def __call__(self, done: int, total: int) -> None:
        if done >= total:
            self.stop()
            self._began = self._clock()  # the next seed has its own estimate
        now = self._clock()
        if now < self._next:
            return
        self._next = now + 0.2
        if self._bar is None and (now - self._began) * total > PATIENCE * max(1, done):
            self._start(total)
        if self._bar is not None:
            self._bar.update(self._task, completed=done)

    def _start(self, total: int) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        self._bar = Progress(*columns, console=Console(stderr=True), transient=True)
        self._task = self._bar.add_task(self._label, total=total)
        self._bar.start()

    def stop(self) -> None:
        """Remove the bar."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

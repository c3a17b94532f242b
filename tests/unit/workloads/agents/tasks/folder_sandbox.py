"""The least that a sandbox can be: a folder, and a shell in it."""

import asyncio
from pathlib import Path

from workloads.sandboxes.contract import Executed, SandboxError


class FolderSandbox:
    """``exec`` of a line with ``skip`` in it is not done (and is said to have come out well)."""

    name = "folder"
    ports: tuple[int, ...] = ()

    def __init__(self, folder: Path, files: dict[str, str], skip: str = "") -> None:
        self.folder = folder
        self.skip = skip
        self.ran: list[str] = []
        for path, text in files.items():
            self.put(path, text)

    def put(self, path, text):
        place = self.folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, encoding="utf-8")

    async def exec(self, command, *, timeout_s=60.0, stdin="", cwd=""):
        self.ran.append(command)
        if self.skip and self.skip in command:
            return Executed(0, "", 0.0)
        shell = await asyncio.create_subprocess_shell(
            command,
            cwd=self.folder,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        output, _ = await asyncio.wait_for(shell.communicate(stdin.encode()), timeout_s)
        return Executed(shell.returncode, output.decode(), 0.1)

    async def write(self, path, text):
        if ".." in path:
            raise SandboxError(f"{path} is outside")
        self.put(path, text)

    async def read(self, path):
        try:
            return (self.folder / path).read_text(encoding="utf-8")
        except OSError as error:
            raise SandboxError(f"{path}: {error.strerror}") from error

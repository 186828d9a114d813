"""A shell with the settings of the service, in which tests run its commands."""

import asyncio
import fcntl
import json
import os
import pty
import re
import struct
import sys
import termios
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Done:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:  # noqa: ANN401  (JSON)
        """Read the last line."""
        assert self.code == 0, self
        return json.loads(self.out.splitlines()[-1])


class Shell:
    """A shell with the settings of the service."""

    def __init__(self, url: str) -> None:
        """Know where Redis is, and no more."""
        own = {name: value for name, value in os.environ.items() if not name.startswith(("STANZAQ_", "COLUMNS"))}
        self.environment = {**own, "STANZAQ_REDIS_URL": url, "STANZAQ_ADMINS": "alice@x"}
        self.command = [sys.executable, "-m", "frontends.cli"]

    async def __call__(self, *words: str, stdout: int = asyncio.subprocess.PIPE) -> Done:
        """Run a command without a terminal."""
        running = await asyncio.create_subprocess_exec(
            *self.command,
            *words,
            env=self.environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=stdout,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await asyncio.wait_for(running.communicate(), 60)
        return Done(running.returncode or 0, (out or b"").decode(), err.decode())

    async def several(self, *commands: Sequence[str]) -> list[Done]:
        """Run commands one after another in one process."""
        running = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "tests.contract.several",
            json.dumps(commands),
            env=self.environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
        )
        out, _ = await asyncio.wait_for(running.communicate(), 100)
        return [Done(*done) for done in json.loads(out)]

    async def on_a_screen(self, columns: int, *words: str) -> str:
        """Run a command at a terminal so many characters wide; gives what it shows."""
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        self.environment |= {"TERM": "xterm", "NO_COLOR": "1"}
        try:
            assert (await self(*words, stdout=theirs)).code == 0
            return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", os.read(ours, 100_000).decode())
        finally:
            os.close(ours)
            os.close(theirs)

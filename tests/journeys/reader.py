"""A reader of a page, who does what each block says, and sees what it shows. Must not know any page."""

import asyncio
import os
import re
import shlex
import sys
from asyncio.subprocess import PIPE, STDOUT, Process
from pathlib import Path
from typing import Final

from frontends.tools.dev import Service
from tests.waiting import PATIENCE_SECONDS

_PROGRAMS: Final = {"stanzaq": [sys.executable, "-m", "frontends.cli"], "python": [sys.executable, "-u"]}


class Reader:
    """Somebody with three terminals: the service's, one for a worker, which is stopped before the next one, and another."""

    def __init__(self, directory: Path, service: Service) -> None:
        """Choose where programs are saved."""
        self._directory = directory
        address = service.http.removeprefix("http://")
        self._places = {"127.0.0.1:8080": address, "/tmp/stanzaq-redis-…/redis.sock": str(service.redis)}  # noqa: S108
        self._environment = os.environ | {
            "STANZAQ_PASSWORD": service.password,
            "STANZAQ_REDIS_URL": f"unix://{service.redis}",
            "STANZAQ_URL": f"http://{service.jid('publisher')}@{address}",
        }
        self._worker: Process | None = None

    async def follow(self, language: str, block: str) -> None:
        """Do what a block says, and see what it shows."""
        for usual, here in self._places.items():
            block = block.replace(usual, here)
        match language:
            case "python":
                (self._directory / block.split()[1]).write_text(block)
            case "console":
                for command, shown in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block, re.MULTILINE):
                    await self._run(command, shown)
            case "text":
                assert self._worker is not None and self._worker.stdout is not None
                for line in block.splitlines():
                    read = await asyncio.wait_for(self._worker.stdout.readline(), PATIENCE_SECONDS)
                    assert read.decode() == f"{line}\n"

    async def _run(self, command: str, shown: str) -> None:
        if command.startswith("stanzaq worker"):
            await self.stop()
            self._worker = await self._start(command, PIPE)
            await self._wait_until_ready(self._worker, command.rpartition(" ")[2].partition(":")[0])
            return
        process = await self._start(command, STDOUT)
        output, _ = await asyncio.wait_for(process.communicate(), 2 * PATIENCE_SECONDS)
        assert process.returncode == 0, output.decode()
        # A table has blanks here, and in a pipe tabs.
        pattern = r"\s+".join(re.escape(word) for word in shown.split()).replace("…", ".*?")
        assert re.fullmatch(rf"\s*{pattern}\s*", output.decode(), re.DOTALL), (command, output)

    async def _start(self, command: str, stderr: int) -> Process:
        program, *arguments = shlex.split(command)
        return await asyncio.create_subprocess_exec(
            *_PROGRAMS.get(program, [program]),
            *arguments,
            cwd=self._directory,
            stdout=PIPE,
            stderr=stderr,
            env=self._environment,
        )

    async def _wait_until_ready(self, worker: Process, module: str) -> None:
        """Wait until a worker has said of each of its queues that it is ready."""
        assert worker.stderr is not None
        for _task in range((self._directory / f"{module}.py").read_text().count("@worker.task")):
            line = await asyncio.wait_for(worker.stderr.readline(), PATIENCE_SECONDS)
            assert b"ready for items of" in line, line

    async def stop(self) -> None:
        """Stop the worker, if there is one, which must end in order."""
        if self._worker is not None and self._worker.returncode is None:
            self._worker.terminate()
            await asyncio.wait_for(self._worker.communicate(), PATIENCE_SECONDS)
            assert self._worker.returncode == 0

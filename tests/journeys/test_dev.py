"""`stanzaq dev`: what it prints can be pasted into another terminal and does what it says."""

import asyncio
import os
import re
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.journeys.service import PATIENCE_SECONDS


@asynccontextmanager
async def running(data: Path) -> AsyncIterator[str]:
    """Run it until it has said all; gives what it said. It ends in order at Ctrl-C."""
    dev = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "frontends.cli", "dev", "--data", str(data)), stdout=PIPE, stderr=PIPE
    )
    try:
        assert dev.stdout is not None
        said = await asyncio.wait_for(dev.stdout.readuntil(b"Ctrl-C ends it.\n"), 3 * PATIENCE_SECONDS)
        yield said.decode()
        dev.send_signal(signal.SIGINT)
        _out, errors = await asyncio.wait_for(dev.communicate(), 2 * PATIENCE_SECONDS)
        assert dev.returncode == 0, errors.decode()
    finally:
        if dev.returncode is None:
            dev.kill()


async def pasted(text: str) -> Process:
    """Run text as a shell does; `python` is ours."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return await asyncio.create_subprocess_exec(
        "bash", "-c", text, stdout=PIPE, stderr=PIPE, env=os.environ | {"PATH": path}
    )


async def test_pasted_commands_work() -> None:
    """An item that is published by curl is worked over XMPP, also after the service was stopped and started with its data."""
    # Its name is shorter than pytest's would be: the path of a unix socket has 107 bytes.
    with TemporaryDirectory() as directory:
        data = Path(directory)
        async with running(data) as said:
            publish, subscribe = re.findall(r"^curl .*$", said, re.MULTILINE)
            # The subscription takes the first item, so the second is free.
            for command in (publish, subscribe, publish):
                curl = await pasted(f"{command} --silent --fail")
                output, errors = await asyncio.wait_for(curl.communicate(), PATIENCE_SECONDS)
                assert curl.returncode == 0, (command, output, errors)
        async with running(data) as said:
            (program,) = re.findall(r"^STANZAQ_PASSWORD.*?^END$", said, re.MULTILINE | re.DOTALL)
            worker = await pasted(program.replace("python", "exec python", 1))
            try:
                assert worker.stdout is not None
                line = await asyncio.wait_for(worker.stdout.readline(), PATIENCE_SECONDS)
                assert line == b"working on {'file': 'cat.png'}\n"
            finally:
                worker.terminate()
                await asyncio.wait_for(worker.communicate(), PATIENCE_SECONDS)

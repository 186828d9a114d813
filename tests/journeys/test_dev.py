"""`stanzaq dev`: the commands that it prints work in another terminal."""

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

from frontends.tools import dev
from stanzaq import transports
from stanzaq.account import HttpAccount
from tests.journeys.service import PATIENCE_SECONDS


@asynccontextmanager
async def running(data: Path) -> AsyncIterator[str]:
    """Run it until all is printed; return that. It ends in order at Ctrl-C."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "frontends.cli", "dev", "--data", str(data)), stdout=PIPE, stderr=PIPE
    )
    try:
        assert process.stdout is not None
        said = await asyncio.wait_for(process.stdout.readuntil(b"Ctrl-C ends it.\n"), 3 * PATIENCE_SECONDS)
        yield said.decode()
        process.send_signal(signal.SIGINT)
        _out, errors = await asyncio.wait_for(process.communicate(), 2 * PATIENCE_SECONDS)
        assert process.returncode == 0, errors.decode()
    finally:
        if process.returncode is None:
            process.kill()


async def pasted(text: str) -> Process:
    """Run text as a shell does; `python` is ours."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return await asyncio.create_subprocess_exec(
        "bash", "-c", text, stdout=PIPE, stderr=PIPE, env=os.environ | {"PATH": path}
    )


async def test_pasted_commands_work() -> None:
    """An item published by curl is worked over XMPP, also after the service was stopped and started with its data."""
    # A shorter name than pytest's: the path of a unix socket has 107 bytes.
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


def test_without_an_xmpp_server() -> None:
    """Without XMPP there is a worker over HTTP to paste, and a line that says what is missing."""
    lines = dev._lines(dev.Service((), "http://127.0.0.1:8080", "", "", Path("redis"), "There is no ejabberd."))
    (program,) = [line for line in lines if "python" in line]
    (url,) = re.findall(r'Worker\("(.*)"\)', program)
    account = transports.account(url, None, dev.PASSWORD, None, "required")
    assert isinstance(account, HttpAccount)
    assert (account.user, account.origin) == ("worker@localhost", "http://127.0.0.1:8080")
    assert lines[-1] == "There is no ejabberd."

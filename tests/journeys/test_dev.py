"""`stanzaq dev`: the commands that it prints work in another terminal."""

import asyncio
import re
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx

from frontends.tools.dev import PASSWORD
from frontends.tools.servers.ejabberd import Ejabberd
from tests.waiting import PATIENCE_SECONDS

_NO_EJABBERD = "from frontends.tools.servers import ejabberd; ejabberd._LIBRARIES = ()"


@asynccontextmanager
async def running(data: Path, first: str = "") -> AsyncIterator[str]:
    """Run it until all is printed; return that. It ends in order at Ctrl-C."""
    program = ["-c", f"{first}; from frontends.cli import app; app()"] if first else ["-m", "frontends.cli"]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, *program, "dev", "--data", str(data)), stdout=PIPE, stderr=PIPE
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


async def asked(said: str) -> None:
    """Run the printed commands of curl, and look at the printed doors."""
    publish, subscribe = re.findall(r"^curl .*$", said, re.MULTILINE)
    # The subscription takes the first item, so the second is free.
    for command in (publish, subscribe, publish):
        curl = await asyncio.create_subprocess_shell(f"{command} --silent --fail", stdout=PIPE, stderr=PIPE)
        output, errors = await asyncio.wait_for(curl.communicate(), PATIENCE_SECONDS)
        assert curl.returncode == 0, (command, output, errors)
    page, user, password = re.findall(r"^The page +(\S+) +user (\S+), password (\S+)$", said, re.MULTILINE)[0]
    async with httpx.AsyncClient(auth=(user, password)) as web:
        assert "<html" in (await web.get(page)).text
        assert (await web.get(page.replace("/ui", "/queues"))).status_code == 200
    host, port = re.findall(r"amqp://(\S+):(\d+)", said)[0]
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"AMQP\x03\x01\x00\x00")
    assert await asyncio.wait_for(reader.readexactly(4), PATIENCE_SECONDS) == b"AMQP"
    writer.close()


async def worked(said: str) -> None:
    """Run the printed worker until it has worked on an item."""
    (program,) = re.findall(r"^STANZAQ_PASSWORD.*?^END$", said, re.MULTILINE | re.DOTALL)
    worker = await asyncio.create_subprocess_exec(
        "bash", "-c", re.sub(r"^(\S+) ", r"\1 exec ", program), stdout=PIPE, stderr=PIPE
    )
    try:
        assert worker.stdout is not None
        line = await asyncio.wait_for(worker.stdout.readline(), PATIENCE_SECONDS)
        assert line == b"working on {'file': 'cat.png'}\n"
    finally:
        worker.terminate()
        await asyncio.wait_for(worker.communicate(), PATIENCE_SECONDS)


async def added(said: str) -> None:
    """Make the printed queue, and add the printed accounts: the one over HTTP sees the queue."""
    create = re.findall(r"^export STANZAQ_REDIS_URL=.*\n.* node create .*$", said, re.MULTILINE)
    grant = re.findall(r"^.* node grant .*$", said, re.MULTILINE)
    create = [f"{first}\n{second}" for first, second in zip(create, grant, strict=True)]
    register = re.findall(r"^.* import register\n.*$", said, re.MULTILINE)
    for command in (*create, *register):
        done = await asyncio.create_subprocess_shell(command, stdout=PIPE, stderr=PIPE)
        output, errors = await asyncio.wait_for(done.communicate(), PATIENCE_SECONDS)
        assert done.returncode == 0 and b"<" not in output, (command, output, errors)
    assert len(create) == 1 and len(register) == ("Work over XMPP" in said)
    (frontend,) = re.findall(r"^STANZAQ_REDIS_URL=.*\n.* serve rest$", said, re.MULTILINE)
    (url,) = re.findall(r"STANZAQ_HTTP_BIND=(\S+)", frontend)
    program = frontend.replace(") /", ") exec /")
    process = await asyncio.create_subprocess_exec("bash", "-c", program, stdout=DEVNULL, stderr=DEVNULL)
    try:
        async with (
            httpx.AsyncClient(auth=(f"alice@{Ejabberd.accounts}", PASSWORD)) as web,
            asyncio.timeout(PATIENCE_SECONDS),
        ):
            while process.returncode is None:
                with suppress(httpx.ConnectError):
                    assert (await web.get(f"http://{url}/queues/pictures")).status_code == 200
                    break
                await asyncio.sleep(0.05)
        assert process.returncode is None
    finally:
        if process.returncode is None:
            process.terminate()
        await asyncio.wait_for(process.wait(), PATIENCE_SECONDS)


async def changed(said: str) -> None:
    """Change the queue, as its owner."""
    (url,) = re.findall(r"^curl .* (http://\S+/queues/\S+)$", said, re.MULTILINE)
    async with httpx.AsyncClient(auth=(f"publisher@{Ejabberd.accounts}", PASSWORD)) as web:
        done = await web.patch(url, json={"options": {"stanzaq#max_deliveries": "9"}})
        assert done.status_code == 200, done.text


async def test_pasted_commands_work() -> None:
    """An item published by curl is worked over XMPP, also after the service was stopped and started with its data."""
    # A shorter name than pytest's: the path of a unix socket has 107 bytes.
    with TemporaryDirectory() as directory:
        async with running(Path(directory)) as said:
            assert "Work over XMPP" in said
            await asked(said)
            await added(said)
            await changed(said)
        async with running(Path(directory)) as said:
            await worked(said)


async def test_without_an_xmpp_server() -> None:
    """Without ejabberd the other doors are there, with a worker over HTTP to paste and a line that says what is missing."""
    with TemporaryDirectory() as directory:
        async with running(Path(directory), _NO_EJABBERD) as said:
            await asked(said)
            await worked(said)
            assert "There is no XMPP: ejabberd is missing: apt-get install ejabberd" in said

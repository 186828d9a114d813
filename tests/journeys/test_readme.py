"""The programs in README, library.md and protocol.md work as described."""

import asyncio
import os
import re
import secrets
import sys
import time
from pathlib import Path
from typing import Any

from stanzaq.xep_qos import Outstanding, Step
from tests.journeys.conftest import Join
from tests.journeys.service import DOMAIN, Service
from tests.waiting import PATIENCE_SECONDS

_ROOT = Path(__file__).parent.parent.parent
PAGES = "".join((_ROOT / page).read_text() for page in ("README.md", "docs/library.md", "docs/protocol.md"))
PROGRAMS = dict(re.findall(r"```python\n# (\w+)\.py.*?\n(.*?)```", PAGES, re.DOTALL))

_OPEN = {"pubsub#publish_model": "open", "stanzaq#dedupe": "ignore"}

# The test's server is on loopback and has no TLS, which slixmpp refuses by default.
PLAIN = """
import functools, slixmpp
class Plain(slixmpp.ClientXMPP):
    def __init__(self, jid, password):
        super().__init__(jid, password, plugin_config={{"feature_mechanisms": {{"unencrypted_scram": True}}}})
        self.enable_direct_tls, self.enable_starttls, self.enable_plaintext = False, False, True
    def connect(self):
        return super().connect("127.0.0.1", {port})
slixmpp.ClientXMPP = Plain
"""


# The programs name an account of example.org, where DNS finds no server of ours.
AT_HOME = """
from stanzaq.transport.account import Account
read = Account.read.__func__
here = {user!r}, {service!r}, None, "127.0.0.1:{port}", "disabled"
Account.read = classmethod(lambda cls, *asked: read(cls, *here))
"""


async def _start_library(
    service: Service, program: str, user: str, directory: Path = _ROOT
) -> asyncio.subprocess.Process:
    code = AT_HOME.format(user=f"xmpp://{user}", service=DOMAIN, port=service.ejabberd.c2s_port) + PROGRAMS[program]
    # Warnings are errors: the programs run without any.
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-W", "error", "-c", code),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=directory,
        env=os.environ | {"STANZAQ_PASSWORD": "secret"},
    )


async def _ended(program: asyncio.subprocess.Process, said: bytes = b"") -> None:
    """Wait until a program has ended well, after it has printed this and nothing else."""
    output = await asyncio.wait_for(program.communicate(), PATIENCE_SECONDS)
    assert (program.returncode, output) == (0, (said, b""))


async def test_worker_and_publisher(service: Service, join: Join) -> None:
    """Twice in a row the worker does what the publisher sends, once, and ends in order; both are short, without warnings."""
    assert len(PROGRAMS["worker"].splitlines()) <= 10 and len(PROGRAMS["publisher"].splitlines()) <= 8
    owner = await join()
    user = service.ejabberd.register(f"library-{secrets.token_hex(4)}", "secret")
    for _time in range(2):
        assert (await owner.create("pictures", _OPEN)).error == ""
        worker = await _start_library(service, "worker", user)
        try:
            for _repeat in range(2):
                await _ended(await _start_library(service, "publisher", user))
            assert worker.stdout is not None
            line = await asyncio.wait_for(worker.stdout.readline(), PATIENCE_SECONDS)
            assert line == b"working on cat.png\n"
            while await owner.browse("pictures"):  # noqa: ASYNC110  (nobody is told)
                await asyncio.sleep(0.02)
            worker.terminate()
            rest, log = await asyncio.wait_for(worker.communicate(), PATIENCE_SECONDS)
            assert (worker.returncode, rest) == (0, b"") and not re.search(
                rb"(?i)warning|error|traceback|connection", log
            )
        finally:
            if worker.returncode is None:
                worker.kill()
            await owner.owner("<delete node='pictures'/>")


async def test_library(service: Service, join: Join, tmp_path: Path) -> None:
    """The publishers in library.md do what is said of them."""
    owner = await join()
    user = service.ejabberd.register(f"library-{secrets.token_hex(4)}", "secret")
    assert (await owner.create("orders", _OPEN)).error == ""
    try:
        await _ended(await _start_library(service, "device", user, tmp_path))
        assert (tmp_path / "outbox.db").is_file()
        await _ended(await _start_library(service, "orders", user), b"100\n")
        await _ended(await _start_library(service, "blocking", user))
    finally:
        await owner.owner("<delete node='orders'/>")


async def test_flow(service: Service, join: Join) -> None:
    """The flow in library.md works on queues made with defaults: its album gets the results of all parts."""
    owner = await join()
    user = service.ejabberd.register(f"library-{secrets.token_hex(4)}", "secret")
    for node in ("resize", "albums"):
        assert (await owner.create(node, {"pubsub#publish_model": "open"})).error == ""
    worker = await _start_library(service, "albums", user)
    try:
        said = b"['small-resize-1.png', 'small-resize-2.png', 'small-resize-3.png']\n"
        await _ended(await _start_library(service, "flow", user), said)
        worker.terminate()
        _, log = await asyncio.wait_for(worker.communicate(), PATIENCE_SECONDS)
        assert worker.returncode == 0 and not re.search(rb"(?i)warning|error|traceback", log)
    finally:
        if worker.returncode is None:
            worker.kill()
        for node in ("resize", "albums"):
            await owner.owner(f"<delete node='{node}'/>")


async def _start(
    service: Service, program: str, node: str, *, user: str = "", directory: Path = _ROOT
) -> asyncio.subprocess.Process:
    user = user or service.ejabberd.register(f"{program.replace('_', '-')}-{secrets.token_hex(4)}", "secret")
    code = PLAIN.format(port=service.ejabberd.c2s_port) + PROGRAMS[program]
    return await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, user, "secret", DOMAIN, node, stdout=asyncio.subprocess.PIPE, cwd=directory
    )


async def test_publisher_and_worker(service: Service) -> None:
    """Ten jobs of the publisher's are printed, each once, by the worker."""
    node = f"readme-{secrets.token_hex(4)}"
    publisher = await _start(service, "slixmpp_publisher", node)
    assert await asyncio.wait_for(publisher.wait(), PATIENCE_SECONDS) == 0
    worker = await _start(service, "slixmpp_worker", node)
    try:
        assert worker.stdout is not None
        lines = [(await asyncio.wait_for(worker.stdout.readline(), PATIENCE_SECONDS)).decode() for _line in range(10)]
        assert sorted(lines) == sorted(f"working on job-{number} {number}\n" for number in range(10))
    finally:
        worker.kill()
        await worker.wait()


async def test_sender(service: Service, join: Join, account: tuple[str, str], tmp_path: Path) -> None:
    """Ten jobs of the sender's are in the queue, with the one that an earlier run had left in its outbox; then that is empty."""
    owner, (user, _) = await join(), account
    node = await owner.queue()
    names: dict[str, Any] = {}
    exec(PROGRAMS["sender"].rpartition("asyncio.run(")[0], names)  # noqa: S102  (it is to be tried as it stands)
    outbox = names["DiskOutbox"](tmp_path / "outbox.db")
    message = "<message xmlns='jabber:client' id='left-1'><job xmlns='urn:example:jobs'>left</job></message>"
    left = Outstanding("left-1", f"{user}/sender", f"{node}@{DOMAIN}", message, Step.ASSURED, time.time())
    outbox.save(left)
    assert outbox.pending() == [left]
    sender = await _start(service, "sender", node, user=user, directory=tmp_path)
    output, _ = await asyncio.wait_for(sender.communicate(), PATIENCE_SECONDS)
    assert (sender.returncode, output) == (0, b"")
    assert [item[0].text for item in await owner.browse(node)] == ["left", *(str(number) for number in range(10))]
    assert outbox.pending() == []


async def test_sender_that_is_refused(service: Service, account: tuple[str, str], tmp_path: Path) -> None:
    """Each job that cannot be sent is printed."""
    sender = await _start(service, "sender", "nowhere", user=account[0], directory=tmp_path)
    output, _ = await asyncio.wait_for(sender.communicate(), PATIENCE_SECONDS)
    assert sender.returncode == 0
    assert len(re.findall(rb"^not sent: .*nowhere@.*gone", output, re.MULTILINE)) == 10

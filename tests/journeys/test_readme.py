"""The README's programs do what it says."""

import asyncio
import re
import secrets
import sys
from pathlib import Path

from tests.journeys.service import DOMAIN, PATIENCE_SECONDS, Service

README = (Path(__file__).parent.parent.parent / "README.md").read_text()
PROGRAMS = dict(re.findall(r"```python\n# (\w+)\.py.*?\n(.*?)```", README, re.DOTALL))

# The test's server is on loopback and has no TLS, which slixmpp refuses unless it is told otherwise.
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


async def _start(service: Service, program: str, node: str) -> asyncio.subprocess.Process:
    user = service.ejabberd.register(f"{program}-{secrets.token_hex(4)}", "secret")
    code = PLAIN.format(port=service.ejabberd.c2s_port) + PROGRAMS[program]
    return await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, user, "secret", DOMAIN, node, stdout=asyncio.subprocess.PIPE
    )


async def test_publisher_and_worker(service: Service) -> None:
    """Ten jobs of the publisher's are printed, each once, by the worker."""
    node = f"readme-{secrets.token_hex(4)}"
    publisher = await _start(service, "publisher", node)
    assert await asyncio.wait_for(publisher.wait(), PATIENCE_SECONDS) == 0
    worker = await _start(service, "worker", node)
    try:
        assert worker.stdout is not None
        lines = [(await asyncio.wait_for(worker.stdout.readline(), PATIENCE_SECONDS)).decode() for _line in range(10)]
        assert sorted(lines) == sorted(f"working on job-{number} {number}\n" for number in range(10))
    finally:
        worker.kill()
        await worker.wait()

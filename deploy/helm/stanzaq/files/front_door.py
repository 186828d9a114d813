"""What `helm test` runs: publish an item and work it through XMPP, as any client would; exits 1 when that fails.

Knows slixmpp and six variables of the environment; must not know anything of the project.
"""

import asyncio
import os
import secrets
import sys
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element

from slixmpp import ClientXMPP, Message
from slixmpp.exceptions import IqError, IqTimeout

_SECONDS = 60


async def _through(xmpp: ClientXMPP, service: str, node: str) -> None:
    worked: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def work(message: Message) -> None:
        item = message["pubsub_event"]["items"]["item"]
        await pubsub.retract(service, node, item["id"])
        worked.set_result(item["id"])

    forms: Any = xmpp.plugin["xep_0004"]
    pubsub: Any = xmpp.plugin["xep_0060"]
    xmpp.add_event_handler("pubsub_publish", work)
    xmpp.send_presence(pto=service)
    await pubsub.create_node(service, node)
    try:
        credit = forms.make_form("submit")
        credit.add_field("FORM_TYPE", "hidden", value="http://jabber.org/protocol/pubsub#subscribe_options")
        credit.add_field("pubsub#queue_requests", value="1")
        await pubsub.subscribe(service, node, bare=False, options=credit)
        await pubsub.publish(service, node, id="one", payload=Element("{urn:stanzaq:test}job"))
        await worked
    finally:
        await pubsub.delete_node(service, node)


async def _main(password: str) -> None:
    host, _, port = os.environ["SERVER"].rpartition(":")
    # A resource of its own: two tests at a time are two workers.
    jid = f"{os.environ['JID']}/{secrets.token_hex(4)}"
    tls = os.environ["TLS"] == "true"
    plain = {} if tls else {"feature_mechanisms": {"unencrypted_plain": True, "unencrypted_scram": True}}
    xmpp = ClientXMPP(jid, password, plugin_config=plain)
    xmpp.register_plugin("xep_0004")
    xmpp.register_plugin("xep_0060")
    if not tls:
        xmpp.enable_direct_tls = xmpp.enable_starttls = False
        xmpp.enable_plaintext = True
    started = asyncio.ensure_future(xmpp.wait_until("session_start", _SECONDS))
    await asyncio.sleep(0)
    xmpp.connect(host, int(port))
    await started
    await _through(xmpp, os.environ["SERVICE"], f"helm-test-{secrets.token_hex(4)}")
    await xmpp.disconnect()


try:
    asyncio.run(asyncio.wait_for(_main(Path(os.environ["PASSWORD_FILE"]).read_text().rstrip("\r\n")), _SECONDS))
except TimeoutError:
    sys.exit(f"no item came through {os.environ['SERVICE']} by way of {os.environ['SERVER']} within {_SECONDS} s")
except (IqError, IqTimeout) as fault:
    sys.exit(f"{os.environ['SERVICE']} refused a request: {fault}")
print("an item was published, delivered and acknowledged")  # noqa: T201  (its purpose)

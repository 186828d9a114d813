"""A publisher and worker by aioxmpp's PubSubClient. Knows XEP-0060 as that library does; nothing of this project.

Run by the library's own Python: HOST PORT JID PASSWORD SERVICE NODE. Writes the outcome as one JSON object.
"""

import asyncio
import json
import sys
from typing import Any

import aioxmpp
from aioxmpp import forms, xso

PATIENCE_SECONDS = 20


@aioxmpp.pubsub.xso.as_payload_class
class Job(xso.XSO):  # type: ignore[misc]
    """A payload."""

    TAG = ("urn:x", "job")
    text = xso.Text(default=None)


def submitted(kind: str, **fields: str) -> Any:  # noqa: ANN401  (the library has no types)
    """Fill in a form."""
    data = forms.Data(type_=forms.DataType.SUBMIT)
    hidden = forms.Field(
        type_=forms.FieldType.HIDDEN, var="FORM_TYPE", values=[f"http://jabber.org/protocol/pubsub#{kind}"]
    )
    data.fields.append(hidden)
    for name, value in fields.items():
        data.fields.append(forms.Field(type_=forms.FieldType.TEXT_SINGLE, var=f"pubsub#{name}", values=[value]))
    return data


def values(data: Any) -> dict[str, list[str]]:  # noqa: ANN401
    """Read a form."""
    return {field.var: list(field.values) for field in data.fields}


class Heard:
    """Events of subscribers, in order."""

    def __init__(self, pubsub: Any) -> None:  # noqa: ANN401
        """Register for events."""
        self.published: asyncio.Queue[tuple[str, Any]] = asyncio.Queue()
        self.retracted: asyncio.Queue[tuple[str, str]] = asyncio.Queue()
        self.deleted: asyncio.Queue[tuple[str, str]] = asyncio.Queue()
        pubsub.on_item_published.connect(self._publish)
        pubsub.on_item_retracted.connect(self._retract)
        pubsub.on_node_deleted.connect(self._delete)

    def _publish(self, _service: object, node: str, item: object, **_more: object) -> None:
        self.published.put_nowait((node, item))

    def _retract(self, _service: object, node: str, name: str, **_more: object) -> None:
        self.retracted.put_nowait((node, name))

    def _delete(self, _service: object, node: str, *, redirect_uri: str, **_more: object) -> None:
        self.deleted.put_nowait((node, redirect_uri))


# XEP-0060 §6.3.7 and XEP-0254 show the options in the result of a subscribe without a JID, which the library does not
# accept.
vars(aioxmpp.pubsub.xso.Options)["jid"].default = None


async def main(host: str, port: str, account: tuple[str, str], service: str, node: str) -> dict[str, Any]:
    """Use a node in every way."""
    jid, password = account
    # On loopback without TLS.
    security = aioxmpp.make_security_layer(password, no_verify=True)._replace(tls_required=False)
    peer = [(host, int(port), aioxmpp.connector.STARTTLSConnector())]
    client = aioxmpp.Client(aioxmpp.JID.fromstr(jid), security, override_peer=peer)
    pubsub = client.summon(aioxmpp.PubSubClient)
    to = aioxmpp.JID.fromstr(service)
    heard = Heard(pubsub)
    did: dict[str, Any] = {}
    async with client.connected() as stream, asyncio.timeout(PATIENCE_SECONDS):
        await stream.send(aioxmpp.Presence(type_=aioxmpp.PresenceType.AVAILABLE, to=to))
        did["features"] = sorted(each.name for each in await pubsub.get_features(to))
        await pubsub.create(to, node)
        did["nodes"] = len(await pubsub.get_nodes(to))
        await pubsub.set_node_config(to, submitted("node_config", title="Jobs"), node=node)
        did["title"] = values(await pubsub.get_node_config(to, node=node))["pubsub#title"]
        friend = aioxmpp.JID.fromstr("friend@localhost")
        await pubsub.change_node_affiliations(to, node, [(friend, "publisher")])
        listed = await pubsub.get_node_affiliations(to, node)
        did["affiliations"] = {str(each.jid): each.affiliation for each in listed.payload.affiliations}
        await pubsub.publish(to, node, Job(), id_="i1")
        await pubsub.publish(to, node, Job(), id_="i2", publish_options=submitted("publish-options", title="Jobs"))
        try:
            await pubsub.publish(to, node, Job(), publish_options=submitted("publish-options", title="Other"))
        except aioxmpp.errors.XMPPCancelError as refused:
            did["precondition"] = refused.condition.value[1]
        did["browsed"] = [item.id_ for item in (await pubsub.get_items(to, node)).payload.items]
        # A part of the list: the page has a count, which the library reads by its schema (XEP-0059 §6).
        did["newest"] = [item.id_ for item in (await pubsub.get_items(to, node, max_items=1)).payload.items]
        own = client.local_jid
        one, five = (submitted("subscribe_options", queue_requests=credit) for credit in "15")
        granted = await pubsub.subscribe(to, node=node, subscription_jid=own, config=one)
        did["subscribed"] = str(granted.payload.subscription)
        options = await pubsub.get_subscription_config(to, node=node, subscription_jid=own)
        did["credit"] = values(options)["pubsub#queue_requests"]
        at, item = await heard.published.get()
        did["delivered"] = [at, item.id_, type(item.registered_payload).__name__]
        await pubsub.retract(to, node, "i1")
        did["retracted"] = list(await heard.retracted.get())
        did["next"] = (await heard.published.get())[1].id_
        await pubsub.set_subscription_config(to, five, node=node, subscription_jid=own)
        await pubsub.purge(to, node)
        await pubsub.delete(to, node, redirect_uri=f"xmpp:{service}?;node=other")
        did["deleted"] = list(await heard.deleted.get())
    return did


if __name__ == "__main__":
    to_host, to_port, own_jid, secret, to_service, name = sys.argv[1:]
    sys.stdout.write(json.dumps(asyncio.run(main(to_host, to_port, (own_jid, secret), to_service, name))))

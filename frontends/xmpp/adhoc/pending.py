"""The ad-hoc command `get-pending`: an owner requests the forms of pending subscriptions (XEP-0060 §8.7).

Must not know how an owner decides.
"""

from collections.abc import Mapping
from typing import Final

from broker.model.commands import ListPending, SendPending
from frontends.xmpp import namespaces as ns
from frontends.xmpp.adhoc import commands
from frontends.xmpp.pubsub import approvals
from frontends.xmpp.stanzas import Iq, Question
from frontends.xmpp.xml import forms


def choice(iq: Iq, nodes: tuple[str, ...]) -> bytes:
    """Write the answer to the first step: the nodes with pending subscriptions."""
    if not nodes:
        return commands.write_completed(iq, ns.PUBSUB_GET_PENDING, "No subscription waits for your approval.")
    field = forms.Field(approvals.NODE, kind="list-single", label="Node", choices=nodes, required=True)
    form = forms.write_form("form", ns.PUBSUB_SUBSCRIBE_AUTHORIZATION, (field,))
    return commands.write_executing(iq, ns.PUBSUB_GET_PENDING, form)


def write_sent(iq: Iq) -> bytes:
    """Write the answer to the second step: the forms are on their way."""
    return commands.write_completed(iq, ns.PUBSUB_GET_PENDING)


def _begin(iq: Iq) -> Question:
    return Question(iq, ListPending(iq.sender))


def _submit(iq: Iq, fields: Mapping[str, tuple[str, ...]]) -> Question:
    return Question(iq, SendPending(approvals.node(fields), iq.sender))


GET_PENDING: Final = commands.Command(
    ns.PUBSUB_GET_PENDING,
    "Get subscriptions that wait for your approval",
    ns.PUBSUB_SUBSCRIBE_AUTHORIZATION,
    _begin,
    _submit,
)

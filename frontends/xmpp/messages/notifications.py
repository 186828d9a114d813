"""Notices: messages that subscribers and holders get without asking. Must not know requests, replies or payloads."""

from collections.abc import Mapping
from itertools import count
from typing import assert_never

from broker.model.commands import Retract, Unlock
from broker.model.items.items import (
    ApprovalAsked,
    ItemEnded,
    LockEnded,
    NodeConfigured,
    NodeEvent,
    Notice,
    OwnershipGained,
    OwnershipLost,
    SubscriptionChanged,
    TreeEvent,
)
from broker.model.items.outcomes import ItemOutcome
from broker.model.names import Jid
from broker.model.nodes.nodes import NodeRecord
from broker.model.problems import CorruptRecord
from broker.model.results import Retracted, Unlocked
from frontends.xmpp import namespaces as ns
from frontends.xmpp.messages import deliveries
from frontends.xmpp.pubsub import approvals, node_config, partition_options, payloads, subscription_lists
from frontends.xmpp.xml.text import escape, escaped_name


def outcome(node: str, ended: ItemOutcome) -> bytes:
    """Write how an item has ended, with its worker's result if there is one and it can be read."""
    try:
        result = payloads.read_element(ended.envelope) if ended.envelope else b""
    except CorruptRecord:
        result = b""
    reason = f" reason='{escape(ended.reason)}'" if ended.reason else ""
    about = f"node='{escaped_name(node)}' item='{escape(ended.item_id)}' state='{ended.state.value}'{reason}"
    return b"<outcome xmlns='%b' %b>%b</outcome>" % (ns.STANZAQ.encode(), about.encode(), result)


class Events:
    """The messages of one frontend; `run` is a prefix of its own that makes the ids of its notices unique (P28)."""

    def __init__(self, service: str, run: str, *, legacy_unlock_ns: bool) -> None:
        """Keep the service's JID, which all frontends share (QX6), and the switch for peers that need the typo (QX4)."""
        self._from = f"<message from='{escape(service)}'"
        self._run = run
        self._numbers = count(1)
        self._configured: tuple[NodeRecord | None, str] = None, ""
        self._unlock_ns = ns.QUEUEING_TYPO if legacy_unlock_ns else ns.QUEUEING

    def write_ended(self, *ended: tuple[Retract | Unlock, Retracted | Unlocked], knows: Jid | None = None) -> bytes:
        """Write that locks were ended on request, one notification for each holder's subscription (Q20, Q29).

        Only the holder is notified, unless it is the one who `knows` by the result; empty if nobody held the items.
        """
        whose: dict[tuple[Jid, str, str, str], list[str]] = {}
        for command, outcome in ended:
            if outcome.holder is None or outcome.holder == knows:
                continue
            inside = whose.setdefault((outcome.holder, command.node, outcome.collection, outcome.subid), [])
            if isinstance(command, Retract):
                inside.append(f"<retract id='{escape(command.item_id)}'/>")
            else:
                inside.append(self._unlock(command.item_id, command.token))
        written = b""
        for (holder, node, collection, subid), inside in whose.items():
            written += self._items(holder, node, "".join(inside), deliveries.subscription_headers(collection, subid))
        return written

    def notice(self, notice: Notice) -> bytes:  # noqa: PLR0911  (a table of cases)
        """Write a notice that a subscriber did not request (Q35, P24, P25)."""
        match notice:
            case LockEnded(node, subscriber, item_id, token, collection, subid, cancelled):
                inside = self._unlock(item_id, token, cancelled=cancelled)
                return self._items(subscriber, node, inside, deliveries.subscription_headers(collection, subid))
            case ItemEnded():
                return self._write_ended_item(notice)
            case OwnershipGained() | OwnershipLost():
                return self._message(notice.subscriber, partition_options.write_notice(notice))
            case TreeEvent(through, subscriber, collection, child, came, subid):
                what = "associate" if came else "dissociate"
                inside = f"<collection node='{escape(collection)}'><{what} node='{escape(child)}'/></collection>"
                return self._message(subscriber, inside, deliveries.subscription_headers(through, subid))
            case SubscriptionChanged(changed, offline):
                told = f"<subscription node='{escape(changed.node)}' {subscription_lists.subscription(changed)}/>"
                # Stored for who is offline, and may have waited for days; a headline is dropped then (RFC 6121 §8.5.3).
                kind = "headline" if offline else ""
                return self._write_message(changed.jid, f"<event xmlns='{ns.PUBSUB_EVENT}'>{told}</event>", kind)
            case ApprovalAsked(owner, waiting):
                return self._write_message(owner, approvals.write_request(waiting))
            case NodeEvent(node, subscriber, what, redirect):
                inside = f"<redirect uri='{escape(redirect)}'/>" if redirect else ""
                return self._message(subscriber, f"<{what} node='{escape(node)}'>{inside}</{what}>")
            case NodeConfigured(subscriber, record):
                return self._message(subscriber, self._configuration(record))
            case _:
                assert_never(notice)

    def _write_ended_item(self, notice: ItemEnded) -> bytes:
        """Write how an item has ended; the id is the same whenever its publisher is told again."""
        content = outcome(notice.node, notice.outcome)
        head = f"{self._from} to='{escaped_name(notice.subscriber)}' id='{escape(notice.name)}'>"
        return b"%b%b</message>" % (head.encode(), content)

    def _configuration(self, record: NodeRecord) -> str:
        # Cached, since thousands of subscribers get the same text in a row.
        if self._configured[0] is not record:
            self._configured = record, node_config.write_changed(record)
        return self._configured[1]

    def _unlock(self, item_id: str, token: int | None, *, cancelled: bool = False) -> str:
        # The token tells a worker the end of an old lock from that of a newer one (X10).
        mark = "" if token is None else f" xmlns:q='{ns.STANZAQ}' q:token='{token}'"
        if cancelled:
            mark += " q:cancelled='true'"
        return f"<unlock xmlns='{self._unlock_ns}' id='{escape(item_id)}'{mark}/>"

    def _items(self, to: Jid, node: str, inside: str, through: Mapping[str, str]) -> bytes:
        return self._message(to, f"<items node='{escaped_name(node)}'>{inside}</items>", through)

    def _message(self, to: Jid, inside: str, through: Mapping[str, str] | None = None) -> bytes:
        beside = payloads.write_headers(through).decode() if through else ""
        return f"{self._write_head(to)}<event xmlns='{ns.PUBSUB_EVENT}'>{inside}</event>{beside}{deliveries.ALONE}".encode()

    def _write_message(self, to: Jid, inside: str, kind: str = "") -> bytes:
        return f"{self._write_head(to, kind)}{inside}</message>".encode()

    def _write_head(self, to: Jid, kind: str = "") -> str:
        mark = f" type='{kind}'" if kind else ""
        return f"{self._from} to='{escaped_name(to)}' id='{self._run}-{next(self._numbers)}'{mark}>"

"""Notices that frontends have to send, as stored in Redis."""

from broker.model.items.items import (
    ApprovalAsked,
    LockEnded,
    NodeConfigured,
    NodeEvent,
    Owned,
    OwnershipGained,
    OwnershipLost,
    SubscriptionChanged,
)
from broker.model.names import Jid
from broker.model.nodes.nodes import Affiliation, NodeRecord
from broker.model.nodes.options import AccessModel, NodeConfig
from broker.model.nodes.subscriptions import State, Subscription
from broker.redis_core.maintenance import relay


def test_notices_as_text() -> None:
    """A notice is read as it was written; unknown ones are skipped."""
    gained = OwnershipGained("jobs", Jid("a@x/1"), Owned(1, "g", 2, 3, 4, 5))
    record = NodeRecord(
        "jobs", "1a", 3, NodeConfig(access_model=AccessModel.WHITELIST), {Jid("o@x"): Affiliation.OWNER}
    )
    waiting = Subscription("jobs", Jid("a@x"), "7", State.PENDING)
    for notice in (
        LockEnded("jobs", Jid("a@x/1"), "ü", 7),
        NodeEvent("jobs", Jid("a@x"), "delete", "xmpp:q.x?;node=b"),
        NodeConfigured(Jid("a@x"), record),
        SubscriptionChanged(waiting),
        ApprovalAsked(Jid("o@x"), waiting),
        gained,
        OwnershipLost("jobs", Jid("a@x/1"), 1, "g", 2, 3, "stolen"),
    ):
        assert relay.decode(relay.encode(notice)) == notice
    for text in (b"", b"{}", b"[1]", b'["Other", {}]', b'["NodeEvent", {"more": 1}]', b'["NodeEvent", 1]', b"[[], {}]"):
        assert relay.decode(text) is None

"""The one table from problems to stanza errors (RFC 6120 §8.3, XEP-0060 §14.2). Must not know requests."""

from typing import Final

from broker.model.frozen import frozen
from broker.model.nodes.fields import decimal
from broker.model.problems import MalformedRequest, Problem
from frontends.xmpp import namespaces as ns
from frontends.xmpp.xml.text import escape


@frozen
class Wire:
    """A stanza error: its type, its condition, XEP-0060's condition and the feature that it names.

    `command` is XEP-0050's condition, `own` this service's.
    """

    kind: str
    condition: str
    pubsub: str = ""
    feature: str = ""
    command: str = ""
    own: str = ""


WIRE: Final = {
    Problem.BAD_REQUEST: Wire("modify", "bad-request"),
    Problem.NODE_REQUIRED: Wire("modify", "bad-request", "nodeid-required"),
    Problem.NODE_NOT_FOUND: Wire("cancel", "item-not-found"),
    # For a `deliver`, where item-not-found would request the message again.
    Problem.NODE_GONE: Wire("cancel", "gone"),
    Problem.NODE_EXISTS: Wire("cancel", "conflict"),
    Problem.NODE_FULL: Wire("wait", "conflict", "node-full"),
    Problem.NODE_DRAINING: Wire("wait", "policy-violation"),
    Problem.NODE_NAME_INVALID: Wire("modify", "bad-request"),
    # XEP-0248 §6.2.3 and §6.4.3.
    Problem.TREE_INVALID: Wire("cancel", "not-allowed", "invalid-options"),
    Problem.TOO_MANY_CHILDREN: Wire("cancel", "not-allowed", "max-nodes-exceeded"),
    Problem.NOT_ASSOCIATED: Wire("modify", "bad-request"),
    Problem.PARTITION_NOT_FOUND: Wire("cancel", "item-not-found"),
    Problem.GROUP_NOT_FOUND: Wire("cancel", "item-not-found"),
    Problem.PARTITION_OWNED: Wire("cancel", "conflict"),
    Problem.ITEM_REQUIRED: Wire("modify", "bad-request", "item-required"),
    Problem.ITEM_NOT_FOUND: Wire("cancel", "item-not-found"),
    Problem.ITEM_ID_INVALID: Wire("modify", "bad-request"),
    Problem.ONE_ITEM_ONLY: Wire("modify", "bad-request"),
    Problem.PAYLOAD_REQUIRED: Wire("modify", "bad-request", "payload-required"),
    Problem.PAYLOAD_INVALID: Wire("modify", "bad-request", "invalid-payload"),
    Problem.PAYLOAD_TOO_BIG: Wire("modify", "not-acceptable", "payload-too-big"),
    Problem.OFFSET_INVALID: Wire("modify", "bad-request"),
    Problem.OFFSET_NOT_FOUND: Wire("cancel", "item-not-found"),
    Problem.RESERVATION_EXPIRED: Wire("cancel", "gone"),
    Problem.RESERVATION_USED: Wire("cancel", "conflict"),
    Problem.FORBIDDEN: Wire("auth", "forbidden"),
    Problem.CLOSED_NODE: Wire("cancel", "not-allowed", "closed-node"),
    # For a retrieval: a subscribe that needs an approval is answered with its state (XEP-0060 §6.5.9.3).
    Problem.APPROVAL_REQUIRED: Wire("auth", "not-authorized", "not-subscribed"),
    Problem.PENDING_SUBSCRIPTION: Wire("auth", "not-authorized", "pending-subscription"),
    Problem.LOCKED_BY_ANOTHER: Wire("cancel", "conflict"),
    Problem.LOCK_LOST: Wire("wait", "unexpected-request"),
    Problem.JID_REQUIRED: Wire("modify", "bad-request", "jid-required"),
    Problem.JID_MISMATCH: Wire("modify", "bad-request", "invalid-jid"),
    Problem.NOT_SUBSCRIBED: Wire("cancel", "unexpected-request", "not-subscribed"),
    Problem.SUPERSEDED: Wire("wait", "internal-server-error"),
    Problem.SUBID_REQUIRED: Wire("modify", "bad-request", "subid-required"),
    Problem.SUBID_INVALID: Wire("modify", "not-acceptable", "invalid-subid"),
    Problem.OPTIONS_REQUIRED: Wire("modify", "not-acceptable", "configuration-required"),
    Problem.OPTIONS_INVALID: Wire("modify", "bad-request", "invalid-options"),
    Problem.LEASE_OVER: Wire("modify", "bad-request", "invalid-options"),
    Problem.ACCESS_MODEL_UNSUPPORTED: Wire("modify", "not-acceptable", "unsupported-access-model"),
    Problem.NOT_ACCEPTABLE: Wire("modify", "not-acceptable"),
    Problem.PRECONDITION_NOT_MET: Wire("cancel", "conflict", "precondition-not-met"),
    # Type `wait`, although the sender must act: it may unsubscribe, or delete a node, and ask again.
    Problem.TOO_MANY_SUBSCRIPTIONS: Wire("wait", "policy-violation", "too-many-subscriptions"),
    Problem.TOO_MANY_NODES: Wire("wait", "policy-violation"),
    Problem.UNSUPPORTED: Wire("cancel", "feature-not-implemented"),
    # What a collection does not support, by XEP-0060's name (H2, H8).
    Problem.PUBLISH_UNSUPPORTED: Wire("cancel", "feature-not-implemented", "unsupported", "publish"),
    Problem.ITEMS_UNSUPPORTED: Wire("cancel", "feature-not-implemented", "unsupported", "retrieve-items"),
    Problem.PERSISTENCE_UNSUPPORTED: Wire("cancel", "feature-not-implemented", "unsupported", "persistent-items"),
    Problem.NOT_TRUSTED: Wire("cancel", "not-allowed"),
    Problem.TOO_MUCH_HELD: Wire("wait", "resource-constraint"),
    Problem.TOO_FAST: Wire("wait", "policy-violation", own="too-fast"),
    Problem.QUOTA_EXCEEDED: Wire("wait", "resource-constraint", own="quota-exceeded"),
    Problem.OUT_OF_MEMORY: Wire("wait", "resource-constraint"),
    Problem.UNAVAILABLE: Wire("wait", "internal-server-error"),
    Problem.TIMED_OUT: Wire("wait", "remote-server-timeout"),
}


class Unserved(MalformedRequest):
    """A request that this service does not support: a feature of XEP-0060, or an unknown protocol."""

    def __init__(self, feature: str = "", detail: str = "") -> None:
        """Keep XEP-0060's name of the feature; without one, the whole protocol is unknown (RFC 6120 §8.3.3.19)."""
        super().__init__(Problem.UNSUPPORTED, detail)
        self.wire = (
            Wire("cancel", "feature-not-implemented", "unsupported", feature)
            if feature
            else Wire("cancel", "service-unavailable")
        )


class BadCommand(MalformedRequest):
    """A malformed ad-hoc command, for which XEP-0050 §4.4 has a condition."""

    def __init__(self, condition: str, detail: str) -> None:
        """Keep the condition."""
        super().__init__(Problem.BAD_REQUEST, detail)
        self.wire = Wire("modify", "bad-request", command=condition)


def wire(fault: MalformedRequest) -> Wire:
    """Return the stanza error for a fault."""
    return fault.wire if isinstance(fault, Unserved | BadCommand) else WIRE[fault.problem]


def write_error(error: Wire, detail: str, wait_ms: int = 0, *, nested: bool = False) -> str:
    """Write `<error/>`, with a text for people; `nested`: not as a child of its stanza, where it needs a namespace.

    This service's own condition tells how long to wait, in seconds, if that is known.
    """
    text = f"<text xmlns='{ns.STANZAS}' xml:lang='en'>{escape(detail)}</text>" if detail else ""
    feature = f" feature='{error.feature}'" if error.feature else ""
    pubsub = f"<{error.pubsub} xmlns='{ns.PUBSUB_ERRORS}'{feature}/>" if error.pubsub else ""
    command = f"<{error.command} xmlns='{ns.COMMANDS}'/>" if error.command else ""
    until = f" retry-after='{decimal(wait_ms / 1000)}'" if wait_ms else ""
    own = f"<{error.own} xmlns='{ns.STANZAQ}'{until}/>" if error.own else ""
    space = f" xmlns='{ns.CLIENT}'" if nested else ""
    return f"<error{space} type='{error.kind}'><{error.condition} xmlns='{ns.STANZAS}'/>{text}{pubsub}{command}{own}</error>"

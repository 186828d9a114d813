"""The table of errors: what each problem is over XMPP, HTTP and AMQP. Data only; must not know requests.

Over XMPP an error is a stanza error (RFC 6120 §8.3, XEP-0060 §14.2), over HTTP a status code (RFC 9110 §15), and over AMQP a
condition (part 2 §2.8.14 to §2.8.18).
"""

from typing import Final

from broker.model.frozen import frozen
from broker.model.problems import Problem


@frozen
class StanzaError:
    """A stanza error: its type, its condition, XEP-0060's condition and the feature that it names.

    `command` is XEP-0050's condition, `own` this service's.
    """

    kind: str
    condition: str
    pubsub: str = ""
    feature: str = ""
    command: str = ""
    own: str = ""


@frozen
class Errors:
    """One problem at the three doors."""

    xmpp: StanzaError
    http: int
    amqp: str


ERRORS: Final = {
    Problem.BAD_REQUEST: Errors(StanzaError("modify", "bad-request"), 400, "amqp:invalid-field"),
    Problem.NODE_REQUIRED: Errors(StanzaError("modify", "bad-request", "nodeid-required"), 400, "amqp:invalid-field"),
    Problem.NODE_NOT_FOUND: Errors(StanzaError("cancel", "item-not-found"), 404, "amqp:not-found"),
    # For a `deliver`, where item-not-found would request the message again.
    Problem.NODE_GONE: Errors(StanzaError("cancel", "gone"), 410, "amqp:resource-deleted"),
    Problem.NODE_EXISTS: Errors(StanzaError("cancel", "conflict"), 409, "amqp:not-allowed"),
    Problem.NODE_FULL: Errors(StanzaError("wait", "conflict", "node-full"), 503, "amqp:resource-limit-exceeded"),
    Problem.NODE_DRAINING: Errors(StanzaError("wait", "policy-violation"), 503, "amqp:resource-limit-exceeded"),
    Problem.NODE_NAME_INVALID: Errors(StanzaError("modify", "bad-request"), 400, "amqp:invalid-field"),
    # XEP-0248 §6.2.3 and §6.4.3.
    Problem.TREE_INVALID: Errors(StanzaError("cancel", "not-allowed", "invalid-options"), 422, "amqp:not-allowed"),
    Problem.TOO_MANY_CHILDREN: Errors(
        StanzaError("cancel", "not-allowed", "max-nodes-exceeded"), 403, "amqp:resource-limit-exceeded"
    ),
    Problem.NOT_ASSOCIATED: Errors(StanzaError("modify", "bad-request"), 403, "amqp:not-allowed"),
    Problem.PARTITION_NOT_FOUND: Errors(StanzaError("cancel", "item-not-found"), 404, "amqp:not-found"),
    Problem.GROUP_NOT_FOUND: Errors(StanzaError("cancel", "item-not-found"), 404, "amqp:not-found"),
    Problem.PARTITION_OWNED: Errors(StanzaError("cancel", "conflict"), 409, "amqp:resource-locked"),
    Problem.ITEM_REQUIRED: Errors(StanzaError("modify", "bad-request", "item-required"), 400, "amqp:invalid-field"),
    Problem.ITEM_NOT_FOUND: Errors(StanzaError("cancel", "item-not-found"), 404, "amqp:not-found"),
    Problem.ITEM_ID_INVALID: Errors(StanzaError("modify", "bad-request"), 400, "amqp:invalid-field"),
    Problem.ONE_ITEM_ONLY: Errors(StanzaError("modify", "bad-request"), 400, "amqp:invalid-field"),
    Problem.PAYLOAD_REQUIRED: Errors(
        StanzaError("modify", "bad-request", "payload-required"), 400, "amqp:decode-error"
    ),
    Problem.PAYLOAD_INVALID: Errors(StanzaError("modify", "bad-request", "invalid-payload"), 400, "amqp:decode-error"),
    Problem.PAYLOAD_TOO_BIG: Errors(
        StanzaError("modify", "not-acceptable", "payload-too-big"), 413, "amqp:link:message-size-exceeded"
    ),
    Problem.OFFSET_INVALID: Errors(StanzaError("modify", "bad-request"), 400, "amqp:invalid-field"),
    Problem.OFFSET_NOT_FOUND: Errors(StanzaError("cancel", "item-not-found"), 404, "amqp:invalid-field"),
    Problem.RESERVATION_EXPIRED: Errors(StanzaError("cancel", "gone"), 410, "amqp:not-found"),
    Problem.RESERVATION_USED: Errors(StanzaError("cancel", "conflict"), 409, "amqp:not-allowed"),
    Problem.FORBIDDEN: Errors(StanzaError("auth", "forbidden"), 403, "amqp:unauthorized-access"),
    Problem.CLOSED_NODE: Errors(StanzaError("cancel", "not-allowed", "closed-node"), 403, "amqp:unauthorized-access"),
    # For a retrieval: a subscribe that needs an approval is answered with its state (XEP-0060 §6.5.9.3).
    Problem.APPROVAL_REQUIRED: Errors(
        StanzaError("auth", "not-authorized", "not-subscribed"), 403, "amqp:unauthorized-access"
    ),
    Problem.PENDING_SUBSCRIPTION: Errors(
        StanzaError("auth", "not-authorized", "pending-subscription"), 403, "amqp:unauthorized-access"
    ),
    Problem.LOCKED_BY_ANOTHER: Errors(StanzaError("cancel", "conflict"), 409, "amqp:resource-locked"),
    Problem.LOCK_LOST: Errors(StanzaError("wait", "unexpected-request"), 409, "amqp:link:stolen"),
    Problem.JID_REQUIRED: Errors(StanzaError("modify", "bad-request", "jid-required"), 400, "amqp:invalid-field"),
    Problem.JID_MISMATCH: Errors(StanzaError("modify", "bad-request", "invalid-jid"), 403, "amqp:unauthorized-access"),
    Problem.NOT_SUBSCRIBED: Errors(
        StanzaError("cancel", "unexpected-request", "not-subscribed"), 404, "amqp:not-found"
    ),
    Problem.SUPERSEDED: Errors(StanzaError("wait", "internal-server-error"), 503, "amqp:link:stolen"),
    Problem.SUBID_INVALID: Errors(StanzaError("modify", "not-acceptable", "invalid-subid"), 404, "amqp:not-found"),
    Problem.SUBID_REQUIRED: Errors(StanzaError("modify", "bad-request", "subid-required"), 400, "amqp:invalid-field"),
    Problem.OPTIONS_REQUIRED: Errors(
        StanzaError("modify", "not-acceptable", "configuration-required"), 422, "amqp:invalid-field"
    ),
    Problem.OPTIONS_INVALID: Errors(StanzaError("modify", "bad-request", "invalid-options"), 422, "amqp:invalid-field"),
    Problem.LEASE_OVER: Errors(StanzaError("modify", "bad-request", "invalid-options"), 410, "amqp:not-allowed"),
    Problem.ACCESS_MODEL_UNSUPPORTED: Errors(
        StanzaError("modify", "not-acceptable", "unsupported-access-model"), 422, "amqp:not-implemented"
    ),
    Problem.NOT_ACCEPTABLE: Errors(StanzaError("modify", "not-acceptable"), 422, "amqp:invalid-field"),
    Problem.PRECONDITION_NOT_MET: Errors(
        StanzaError("cancel", "conflict", "precondition-not-met"), 412, "amqp:precondition-failed"
    ),
    # Type `wait`, although the sender must act: it may unsubscribe, or delete a node, and ask again.
    Problem.TOO_MANY_SUBSCRIPTIONS: Errors(
        StanzaError("wait", "policy-violation", "too-many-subscriptions"), 403, "amqp:resource-limit-exceeded"
    ),
    Problem.TOO_MANY_NODES: Errors(StanzaError("wait", "policy-violation"), 403, "amqp:resource-limit-exceeded"),
    # RFC 9110 §15.6.2: 501 over HTTP would mean that no resource supports it.
    Problem.UNSUPPORTED: Errors(StanzaError("cancel", "feature-not-implemented"), 409, "amqp:not-implemented"),
    # What a collection does not support, by XEP-0060's name (H2, H8).
    Problem.PUBLISH_UNSUPPORTED: Errors(
        StanzaError("cancel", "feature-not-implemented", "unsupported", "publish"), 409, "amqp:not-implemented"
    ),
    Problem.ITEMS_UNSUPPORTED: Errors(
        StanzaError("cancel", "feature-not-implemented", "unsupported", "retrieve-items"), 404, "amqp:not-implemented"
    ),
    Problem.PERSISTENCE_UNSUPPORTED: Errors(
        StanzaError("cancel", "feature-not-implemented", "unsupported", "persistent-items"), 409, "amqp:not-implemented"
    ),
    Problem.NOT_TRUSTED: Errors(StanzaError("cancel", "not-allowed"), 403, "amqp:unauthorized-access"),
    Problem.TOO_MUCH_HELD: Errors(StanzaError("wait", "resource-constraint"), 429, "amqp:resource-limit-exceeded"),
    Problem.TOO_FAST: Errors(
        StanzaError("wait", "policy-violation", own="too-fast"), 429, "amqp:resource-limit-exceeded"
    ),
    Problem.QUOTA_EXCEEDED: Errors(
        StanzaError("wait", "resource-constraint", own="quota-exceeded"), 507, "amqp:resource-limit-exceeded"
    ),
    Problem.OUT_OF_MEMORY: Errors(StanzaError("wait", "resource-constraint"), 503, "amqp:resource-limit-exceeded"),
    Problem.UNAVAILABLE: Errors(StanzaError("wait", "internal-server-error"), 503, "amqp:internal-error"),
    Problem.TIMED_OUT: Errors(StanzaError("wait", "remote-server-timeout"), 504, "amqp:internal-error"),
}

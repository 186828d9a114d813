"""The one table from problems to AMQP error conditions (part 2 §2.8.14 to §2.8.18). Must not know links."""

from typing import Final, Self

from broker.model.problems import MalformedRequest, Problem
from broker.model.results import Refused

NOT_FOUND: Final = "amqp:not-found"
UNAUTHORIZED: Final = "amqp:unauthorized-access"
NOT_ALLOWED: Final = "amqp:not-allowed"
INVALID_FIELD: Final = "amqp:invalid-field"
NOT_IMPLEMENTED: Final = "amqp:not-implemented"
LIMIT: Final = "amqp:resource-limit-exceeded"
LOCKED: Final = "amqp:resource-locked"
DELETED: Final = "amqp:resource-deleted"
INTERNAL: Final = "amqp:internal-error"
DECODE: Final = "amqp:decode-error"
PRECONDITION: Final = "amqp:precondition-failed"
TOO_BIG: Final = "amqp:link:message-size-exceeded"
STOLEN: Final = "amqp:link:stolen"
DETACHED: Final = "amqp:link:detach-forced"
FORCED: Final = "amqp:connection:forced"
FRAMING: Final = "amqp:connection:framing-error"
ILLEGAL_STATE: Final = "amqp:illegal-state"
HANDLE_IN_USE: Final = "amqp:session:handle-in-use"
UNATTACHED_HANDLE: Final = "amqp:session:unattached-handle"
TRANSFER_LIMIT: Final = "amqp:link:transfer-limit-exceeded"

CONDITION: Final = {
    Problem.BAD_REQUEST: INVALID_FIELD,
    Problem.NODE_REQUIRED: INVALID_FIELD,
    Problem.NODE_NOT_FOUND: NOT_FOUND,
    Problem.NODE_GONE: DELETED,
    Problem.NODE_EXISTS: NOT_ALLOWED,
    Problem.NODE_FULL: LIMIT,
    Problem.NODE_DRAINING: LIMIT,
    Problem.NODE_NAME_INVALID: INVALID_FIELD,
    Problem.TREE_INVALID: NOT_ALLOWED,
    Problem.TOO_MANY_CHILDREN: LIMIT,
    Problem.NOT_ASSOCIATED: NOT_ALLOWED,
    Problem.PARTITION_NOT_FOUND: NOT_FOUND,
    Problem.GROUP_NOT_FOUND: NOT_FOUND,
    Problem.PARTITION_OWNED: LOCKED,
    Problem.ITEM_REQUIRED: INVALID_FIELD,
    Problem.ITEM_NOT_FOUND: NOT_FOUND,
    Problem.ITEM_ID_INVALID: INVALID_FIELD,
    Problem.ONE_ITEM_ONLY: INVALID_FIELD,
    Problem.PAYLOAD_REQUIRED: DECODE,
    Problem.PAYLOAD_INVALID: DECODE,
    Problem.PAYLOAD_TOO_BIG: TOO_BIG,
    Problem.OFFSET_INVALID: INVALID_FIELD,
    Problem.OFFSET_NOT_FOUND: INVALID_FIELD,
    Problem.RESERVATION_EXPIRED: NOT_FOUND,
    Problem.RESERVATION_USED: NOT_ALLOWED,
    Problem.FORBIDDEN: UNAUTHORIZED,
    Problem.CLOSED_NODE: UNAUTHORIZED,
    Problem.APPROVAL_REQUIRED: UNAUTHORIZED,
    Problem.PENDING_SUBSCRIPTION: UNAUTHORIZED,
    Problem.LOCKED_BY_ANOTHER: LOCKED,
    Problem.LOCK_LOST: STOLEN,
    Problem.JID_REQUIRED: INVALID_FIELD,
    Problem.JID_MISMATCH: UNAUTHORIZED,
    Problem.NOT_SUBSCRIBED: NOT_FOUND,
    Problem.SUPERSEDED: STOLEN,
    Problem.SUBID_REQUIRED: INVALID_FIELD,
    Problem.SUBID_INVALID: NOT_FOUND,
    Problem.OPTIONS_REQUIRED: INVALID_FIELD,
    Problem.OPTIONS_INVALID: INVALID_FIELD,
    Problem.LEASE_OVER: NOT_ALLOWED,
    Problem.ACCESS_MODEL_UNSUPPORTED: NOT_IMPLEMENTED,
    Problem.NOT_ACCEPTABLE: INVALID_FIELD,
    Problem.PRECONDITION_NOT_MET: PRECONDITION,
    Problem.TOO_MANY_SUBSCRIPTIONS: LIMIT,
    Problem.TOO_MANY_NODES: LIMIT,
    Problem.UNSUPPORTED: NOT_IMPLEMENTED,
    Problem.PUBLISH_UNSUPPORTED: NOT_IMPLEMENTED,
    Problem.ITEMS_UNSUPPORTED: NOT_IMPLEMENTED,
    Problem.PERSISTENCE_UNSUPPORTED: NOT_IMPLEMENTED,
    Problem.NOT_TRUSTED: UNAUTHORIZED,
    Problem.TOO_MUCH_HELD: LIMIT,
    Problem.TOO_FAST: LIMIT,
    Problem.QUOTA_EXCEEDED: LIMIT,
    Problem.OUT_OF_MEMORY: LIMIT,
    Problem.UNAVAILABLE: INTERNAL,
    Problem.TIMED_OUT: INTERNAL,
}


class Fault(Exception):  # noqa: N818  (named after what it is)
    """An AMQP error: why a link is detached, a delivery rejected, or a connection closed."""

    def __init__(self, condition: str, detail: str = "", problem: Problem | None = None) -> None:
        """Keep condition and detail, and the problem that it was if it is the core's."""
        super().__init__(f"{condition}: {detail}")
        self.condition = condition
        self.detail = detail
        self.code = problem.value if problem else condition
        self.is_ours = problem.is_ours if problem else condition == INTERNAL

    def as_stolen(self) -> Self:
        """Return it as a stolen link; its own condition begins the detail."""
        self.condition, self.detail = STOLEN, f"{self.condition}: {self.detail}"
        return self


def fault(refusal: Refused | MalformedRequest) -> Fault:
    """Turn a refusal of the core or a translator into an AMQP error."""
    problem = refusal.problem
    return Fault(CONDITION[problem], refusal.detail or problem.value.replace("-", " "), problem)

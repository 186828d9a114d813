"""Why a request is refused: a closed list with stable codes. Must not know a wire; each door maps these to its errors."""

from enum import Enum


class Problem(Enum):
    """A reason for refusal; the value is the stable code in operations' replies, logs and metrics."""

    BAD_REQUEST = "bad-request"
    NODE_REQUIRED = "node-required"
    NODE_NOT_FOUND = "node-not-found"
    NODE_GONE = "node-gone"
    NODE_EXISTS = "node-exists"
    NODE_FULL = "node-full"
    NODE_DRAINING = "node-draining"
    NODE_NAME_INVALID = "node-name-invalid"
    TREE_INVALID = "tree-invalid"
    TOO_MANY_CHILDREN = "too-many-children"
    NOT_ASSOCIATED = "not-associated"
    PARTITION_NOT_FOUND = "partition-not-found"
    GROUP_NOT_FOUND = "group-not-found"
    PARTITION_OWNED = "partition-owned"
    ITEM_REQUIRED = "item-required"
    ITEM_NOT_FOUND = "item-not-found"
    ITEM_ID_INVALID = "item-id-invalid"
    ONE_ITEM_ONLY = "one-item-only"
    PAYLOAD_REQUIRED = "payload-required"
    PAYLOAD_INVALID = "payload-invalid"
    PAYLOAD_TOO_BIG = "payload-too-big"
    OFFSET_INVALID = "offset-invalid"
    OFFSET_NOT_FOUND = "offset-not-found"
    RESERVATION_EXPIRED = "reservation-expired"
    RESERVATION_USED = "reservation-used"
    FORBIDDEN = "forbidden"
    CLOSED_NODE = "closed-node"
    APPROVAL_REQUIRED = "approval-required"
    PENDING_SUBSCRIPTION = "pending-subscription"
    LOCKED_BY_ANOTHER = "locked-by-another"
    LOCK_LOST = "lock-lost"
    JID_REQUIRED = "jid-required"
    JID_MISMATCH = "jid-mismatch"
    NOT_SUBSCRIBED = "not-subscribed"
    SUPERSEDED = "superseded"
    SUBID_INVALID = "subid-invalid"
    SUBID_REQUIRED = "subid-required"
    OPTIONS_REQUIRED = "options-required"
    OPTIONS_INVALID = "options-invalid"
    LEASE_OVER = "lease-over"
    ACCESS_MODEL_UNSUPPORTED = "access-model-unsupported"
    NOT_ACCEPTABLE = "not-acceptable"
    PRECONDITION_NOT_MET = "precondition-not-met"
    TOO_MANY_SUBSCRIPTIONS = "too-many-subscriptions"
    TOO_MANY_NODES = "too-many-nodes"
    UNSUPPORTED = "unsupported"
    PUBLISH_UNSUPPORTED = "publish-unsupported"
    ITEMS_UNSUPPORTED = "items-unsupported"
    PERSISTENCE_UNSUPPORTED = "persistence-unsupported"
    NOT_TRUSTED = "not-trusted"
    TOO_MUCH_HELD = "too-much-held"
    TOO_FAST = "too-fast"
    QUOTA_EXCEEDED = "quota-exceeded"
    OUT_OF_MEMORY = "out-of-memory"
    UNAVAILABLE = "unavailable"
    TIMED_OUT = "timed-out"

    @property
    def retryable(self) -> bool:
        """Whether the same request may succeed later without any change."""
        return self in _RETRYABLE

    @property
    def is_gone(self) -> bool:
        """Whether the node, or the partition, is not there any more."""
        return self in _GONE

    @property
    def is_unstored(self) -> bool:
        """Whether a publish that was refused for it has certainly stored nothing."""
        return self in _UNSTORED

    @property
    def is_ours(self) -> bool:
        """Whether no other request would succeed now: Redis is away, slow or full."""
        return self in _OURS


_GONE = frozenset({Problem.NODE_NOT_FOUND, Problem.PARTITION_NOT_FOUND})
_UNSTORED = _GONE | {Problem.NODE_FULL, Problem.PUBLISH_UNSUPPORTED}
_OURS = frozenset({Problem.UNAVAILABLE, Problem.TIMED_OUT, Problem.OUT_OF_MEMORY})
_RETRYABLE = frozenset(
    {
        Problem.OUT_OF_MEMORY,
        Problem.UNAVAILABLE,
        Problem.TIMED_OUT,
        Problem.NODE_FULL,
        Problem.NODE_DRAINING,
        Problem.LOCK_LOST,
        Problem.TOO_MUCH_HELD,
        Problem.TOO_FAST,
        Problem.QUOTA_EXCEEDED,
    }
)


class MalformedRequest(Exception):  # noqa: N818  (a peer's fault, named for what it is)
    """A peer's request breaks its protocol: raised by pure translators, answered by the door, never logged as a defect."""

    def __init__(self, problem: Problem, detail: str = "", wait_ms: int = 0) -> None:
        """Keep the problem, which chooses the wire's error, a sentence for the peer, and how long it has to wait if known."""
        super().__init__(f"{problem.value}: {detail}")
        self.problem = problem
        self.detail = detail
        self.wait_ms = wait_ms


class CoreUnavailable(Exception):  # noqa: N818
    """Redis did not answer, or not in time; the request may or may not have taken effect.

    The exception's text is for operators and has addresses; `detail` is for the client.
    """

    def __init__(self, detail: str, problem: Problem = Problem.UNAVAILABLE, report: str = "") -> None:
        """Keep the problem (unavailable, timed-out or out-of-memory), the client's detail, and the report for operators."""
        super().__init__(report or detail)
        self.detail = detail
        self.problem = problem


class Forbidden(CoreUnavailable):
    """Redis does not allow its user the command; it works as soon as an operator grants the right."""


class OtherFormat(CoreUnavailable):
    """Redis holds a store of another version of this program: nothing of it is read or written."""


class OperationDefect(Exception):  # noqa: N818
    """An operation failed or broke the contract in its header: a defect of this program, with file and line."""


class CorruptRecord(Exception):  # noqa: N818
    """A stored record cannot be read."""

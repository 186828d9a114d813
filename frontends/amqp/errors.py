"""Refusals as AMQP errors (part 2 §2.8.14 to §2.8.18). Must not know links."""

from typing import Final, Self

from broker.model.problems import MalformedRequest, Problem
from broker.model.results import Refused
from frontends.errors import ERRORS

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
    return Fault(ERRORS[problem].amqp, refusal.detail or problem.value.replace("-", " "), problem)

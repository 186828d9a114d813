"""Refusals as stanza errors (RFC 6120 §8.3, XEP-0060 §14.2). Must not know requests."""

from broker.model.nodes.fields import decimal
from broker.model.problems import MalformedRequest, Problem
from frontends.errors import ERRORS, StanzaError
from frontends.xmpp import namespaces as ns
from frontends.xmpp.xml.text import escape


class Unserved(MalformedRequest):
    """A request that this service does not support: a feature of XEP-0060, or an unknown protocol."""

    def __init__(self, feature: str = "", detail: str = "") -> None:
        """Keep XEP-0060's name of the feature; without one, the whole protocol is unknown (RFC 6120 §8.3.3.19)."""
        super().__init__(Problem.UNSUPPORTED, detail)
        self.wire = (
            StanzaError("cancel", "feature-not-implemented", "unsupported", feature)
            if feature
            else StanzaError("cancel", "service-unavailable")
        )


class BadCommand(MalformedRequest):
    """A malformed ad-hoc command, for which XEP-0050 §4.4 has a condition."""

    def __init__(self, condition: str, detail: str) -> None:
        """Keep the condition."""
        super().__init__(Problem.BAD_REQUEST, detail)
        self.wire = StanzaError("modify", "bad-request", command=condition)


def wire(fault: MalformedRequest) -> StanzaError:
    """Return the stanza error for a fault."""
    return fault.wire if isinstance(fault, Unserved | BadCommand) else ERRORS[fault.problem].xmpp


def write_error(error: StanzaError, detail: str, wait_ms: int = 0, *, nested: bool = False) -> str:
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

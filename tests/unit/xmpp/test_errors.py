"""The table from problems to stanza errors is complete, and agrees with the requirements."""

from xml.etree import ElementTree as ET

import pytest

from broker.model.problems import MalformedRequest, Problem
from frontends.errors import ERRORS
from frontends.xmpp import errors
from frontends.xmpp import namespaces as ns


def test_every_problem_has_its_error() -> None:
    """A new problem cannot be forgotten in the table of the three doors."""
    assert set(ERRORS) == set(Problem)


def test_what_may_succeed_later_says_wait() -> None:
    """A retryable problem is of type wait, so that a peer which knows only RFC 6120 knows to try again."""
    assert {problem for problem in Problem if problem.retryable} <= {
        problem for problem, each in ERRORS.items() if each.xmpp.kind == "wait"
    }


@pytest.mark.parametrize(
    ("problem", "kind", "condition", "pubsub"),
    [
        # D1 to D11, QX3
        (Problem.LOCKED_BY_ANOTHER, "cancel", "conflict", None),
        (Problem.FORBIDDEN, "auth", "forbidden", None),
        (Problem.LOCK_LOST, "wait", "unexpected-request", None),
        (Problem.ITEM_NOT_FOUND, "cancel", "item-not-found", None),
        (Problem.NODE_NOT_FOUND, "cancel", "item-not-found", None),
        (Problem.NODE_REQUIRED, "modify", "bad-request", "nodeid-required"),
        (Problem.ITEM_REQUIRED, "modify", "bad-request", "item-required"),
        # P6, P11, P12, P13, P14, P17, P22
        (Problem.CLOSED_NODE, "cancel", "not-allowed", "closed-node"),
        (Problem.TOO_MANY_SUBSCRIPTIONS, "wait", "policy-violation", "too-many-subscriptions"),
        (Problem.JID_MISMATCH, "modify", "bad-request", "invalid-jid"),
        (Problem.NOT_SUBSCRIBED, "cancel", "unexpected-request", "not-subscribed"),
        (Problem.SUBID_REQUIRED, "modify", "bad-request", "subid-required"),
        (Problem.SUBID_INVALID, "modify", "not-acceptable", "invalid-subid"),
        (Problem.JID_REQUIRED, "modify", "bad-request", "jid-required"),
        (Problem.PAYLOAD_TOO_BIG, "modify", "not-acceptable", "payload-too-big"),
        (Problem.NODE_FULL, "wait", "conflict", "node-full"),
        (Problem.NODE_EXISTS, "cancel", "conflict", None),
        # Q7, Q11
        (Problem.OPTIONS_REQUIRED, "modify", "not-acceptable", "configuration-required"),
        (Problem.OPTIONS_INVALID, "modify", "bad-request", "invalid-options"),
        # Redis out of memory, away, or late
        (Problem.OUT_OF_MEMORY, "wait", "resource-constraint", None),
        (Problem.UNAVAILABLE, "wait", "internal-server-error", None),
        (Problem.TIMED_OUT, "wait", "remote-server-timeout", None),
    ],
)
def test_says_what_the_rows_say(problem: Problem, kind: str, condition: str, pubsub: str | None) -> None:
    """Type, condition and XEP-0060's condition are those of the requirements; the sentence stands in a text."""
    error = ET.fromstring(errors.write_error(errors.wire(MalformedRequest(problem)), "because <so>"))
    assert error.get("type") == kind
    assert error[0].tag == f"{{{ns.STANZAS}}}{condition}"
    assert error[1].tag == f"{{{ns.STANZAS}}}text"
    assert error[1].text == "because <so>"
    assert [child.tag for child in error[2:]] == ([f"{{{ns.PUBSUB_ERRORS}}}{pubsub}"] if pubsub else [])


def test_says_how_long_to_wait() -> None:
    """stanzaq#publish_rate: who publishes too fast is told the seconds until the next item."""
    fault = MalformedRequest(Problem.TOO_FAST, "slower", 1_250)
    error = ET.fromstring(errors.write_error(errors.wire(fault), fault.detail, fault.wait_ms))
    assert (error.get("type"), error[0].tag) == ("wait", f"{{{ns.STANZAS}}}policy-violation")
    assert (error[2].tag, error[2].get("retry-after")) == (f"{{{ns.STANZAQ}}}too-fast", "1.25")


def test_names_a_used_up_quota() -> None:
    """A quota of items or bytes is a resource, and the text says which: nobody knows when there will be room."""
    fault = MalformedRequest(Problem.QUOTA_EXCEEDED, "3 items")
    error = ET.fromstring(errors.write_error(errors.wire(fault), fault.detail, fault.wait_ms))
    assert (error.get("type"), error[0].tag) == ("wait", f"{{{ns.STANZAS}}}resource-constraint")
    assert [error[1].text, error[2].tag, error[2].attrib] == ["3 items", f"{{{ns.STANZAQ}}}quota-exceeded", {}]


def test_names_an_unsupported_feature() -> None:
    """What XEP-0060 has and we have not is named (P35); a protocol that is none of ours is no service at all."""
    error = ET.fromstring(errors.write_error(errors.wire(errors.Unserved(feature="publish-options")), ""))
    assert [child.tag.rpartition("}")[2] for child in error] == ["feature-not-implemented", "unsupported"]
    assert error[1].get("feature") == "publish-options"
    stranger = ET.fromstring(errors.write_error(errors.wire(errors.Unserved()), ""))
    assert [child.tag.rpartition("}")[2] for child in stranger] == ["service-unavailable"]

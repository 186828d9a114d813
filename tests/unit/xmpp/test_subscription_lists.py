"""Lists of subscriptions and affiliations, and owners' changes of them."""

from collections.abc import Callable
from xml.etree import ElementTree as ET

import pytest

from broker.model.commands import Affiliations, ListSubscribers, ManageSubscribers, Subscriptions
from broker.model.names import Jid
from broker.model.nodes.nodes import Affiliation
from broker.model.nodes.subscriptions import Change, State, Subscription
from broker.model.pages import Page
from broker.model.problems import MalformedRequest, Problem
from broker.model.results import AffiliationList, SubscriptionList
from frontends.xmpp import namespaces as ns
from frontends.xmpp.pubsub import subscription_lists
from frontends.xmpp.stanzas import Question

_ME = Jid("worker@example.org/desk")

Read = Callable[..., Question]
Fault = Callable[..., MalformedRequest]


def _pubsub(inside: str, space: str = ns.PUBSUB) -> str:
    return f"<pubsub xmlns='{space}'>{inside}</pubsub>"


def _managed(*entries: str) -> str:
    return _pubsub(f"<subscriptions node='jobs'>{''.join(entries)}</subscriptions>", ns.PUBSUB_OWNER)


@pytest.mark.parametrize(("about", "node"), [("", None), ("node='jobs'", "jobs")])
def test_own(read: Read, about: str, node: str | None) -> None:
    """Anyone may list its own, of the whole service or of one node (P10)."""
    assert read(_pubsub(f"<subscriptions {about}/>"), "get").command == Subscriptions(_ME, node)
    assert read(_pubsub(f"<affiliations {about}/>"), "get").command == Affiliations(_ME, node)


@pytest.mark.parametrize("name", ["subscriptions", "affiliations"])
def test_own_mistakes(fault: Fault, name: str) -> None:
    """A set, a node without a name and one that is too long are refused; owners name a node."""
    assert fault(_pubsub("<subscriptions/>", ns.PUBSUB_OWNER), "get").problem is Problem.NODE_REQUIRED
    assert fault(_pubsub(f"<{name}/>"), "set").problem is Problem.BAD_REQUEST
    assert fault(_pubsub(f"<{name} node=''/>"), "get").problem is Problem.NODE_REQUIRED
    assert fault(_pubsub(f"<{name} node='{'x' * 1024}'/>"), "get").problem is Problem.NODE_NAME_INVALID


def test_managing(read: Read) -> None:
    """An owner lists subscriptions and sends changes; an entry without a state changes nothing (P26)."""
    assert read(_managed(), "get").command == ListSubscribers("jobs", _ME)
    wanted = f"<set xmlns='{ns.RSM}'><max>20</max><after>w@x/a 7</after></set>"
    paged = _pubsub(f"<subscriptions node='jobs'/>{wanted}", ns.PUBSUB_OWNER)
    assert read(paged, "get").command == ListSubscribers("jobs", _ME, Page(20, "w@x/a 7"))
    entries = (
        "<subscription jid='W@x/A' subscription='none'/>",
        "<subscription jid='w@x/B' subscription='subscribed' subid='7'/>",
        "<subscription jid='v@x'/>",
    )
    changes = (Change(Jid("w@x/A"), "", "none"), Change(Jid("w@x/B"), "7", "subscribed"))
    assert read(_managed(*entries)).command == ManageSubscribers("jobs", _ME, changes)


@pytest.mark.parametrize(
    ("entries", "problem"),
    [
        ([], Problem.BAD_REQUEST),
        (["<subscription subscription='none'/>"], Problem.JID_REQUIRED),
        (["<subscription jid='w@x' subscription='perhaps'/>"], Problem.BAD_REQUEST),
        (["<subscription jid='w@x' subscription=''/>"], Problem.BAD_REQUEST),
        (["<subscription jid='w@x' subscription='none'/>"] * 2, Problem.BAD_REQUEST),
        ([f"<subscription jid='{'w' * 4000}@x' subscription='none'/>"], Problem.JID_MISMATCH),
        ([f"<subscription jid='w@x/{n}' subscription='none'/>" for n in range(501)], Problem.NOT_ACCEPTABLE),
    ],
)
def test_managing_mistakes(fault: Fault, entries: list[str], problem: Problem) -> None:
    """Each half request is refused by name, and so is one that is too large."""
    assert fault(_managed(*entries)).problem is problem


def test_written() -> None:
    """Each entry says its node, its JID, its subid and its state; a list without entries is empty (P10)."""
    listed = SubscriptionList((Subscription("a'b", Jid("w@x/<1>"), "7", State.PENDING),))
    pubsub = ET.fromstring(subscription_lists.write_own("a'b", listed))
    assert pubsub[0].attrib == {"node": "a'b"}
    assert pubsub[0][0].attrib == {"node": "a'b", "jid": "w@x/<1>", "subid": "7", "subscription": "pending"}
    empty = ET.fromstring(subscription_lists.write_own(None, SubscriptionList(())))
    assert (empty[0].tag, empty[0].attrib, len(empty[0])) == (f"{{{ns.PUBSUB}}}subscriptions", {}, 0)
    known = ET.fromstring(subscription_lists.standings(AffiliationList((("a", Affiliation.PUBLISH_ONLY),))))
    assert [entry.attrib for entry in known[0]] == [{"node": "a", "affiliation": "publish-only"}]


def test_that_there_are_more() -> None:
    """An owner of many subscribers reads that it sees a part of them."""
    one = (Subscription("jobs", Jid("w@x"), "7", State.SUBSCRIBED),)
    for more, mark in ((False, None), (True, "true")):
        listed = ET.fromstring(subscription_lists.subscribers("jobs", one, more=more))[0]
        assert listed.get(f"{{{ns.STANZAQ}}}more") == mark and len(listed) == 1


def test_a_page(read: Read) -> None:
    """XEP-0059: a page says which part of how many it is; a list that is cut without one says that there are more."""
    listed = tuple(Subscription("jobs", Jid(f"w@x/{name}"), "7", State.SUBSCRIBED) for name in ("a", "b"))
    found = SubscriptionList(listed, more=True, index=3, count=9)
    asked = ListSubscribers("jobs", _ME, Page(2))
    shown, page = ET.fromstring(subscription_lists.write_list(asked, found))
    assert len(shown) == 2 and dict(shown.attrib) == {"node": "jobs"}
    assert [(each.tag.partition("}")[2], each.text) for each in page] == [
        ("first", "w@x/a 7"),
        ("last", "w@x/b 7"),
        ("count", "9"),
    ]
    assert page[0].get("index") == "3"
    (whole,) = ET.fromstring(subscription_lists.write_list(ListSubscribers("jobs", _ME), found))
    assert whole.get(f"{{{ns.STANZAQ}}}more") == "true"
    assert (
        ET.fromstring(subscription_lists.write_list(asked, SubscriptionList((), more=True, count=9)))[1][0].text == "9"
    )

"""The pure parts of the HTTP door: representations, the tree, rates, and the one table of errors."""

import pytest

from broker import codec
from broker.model.items.outcomes import End, ItemOutcome
from broker.model.names import Jid
from broker.model.problems import MalformedRequest, Problem
from broker.model.results import Browsed, Ended
from frontends.errors import ERRORS
from frontends.rest import errors, paths
from frontends.rest.auth import rate_limit
from frontends.rest.errors import Fault
from frontends.rest.formats.views import Child
from frontends.rest.http import negotiation
from frontends.rest.http.values import ApiRequest
from frontends.rest.queues import handlers, requests, views

ALICE, BOB = Jid("alice@x"), Jid("bob@x")


async def test_a_message_that_ends_between_two_looks() -> None:
    """RX8: a message that is gone, and whose end is kept, is not reported as missing."""
    gone, waits = Browsed((), more=False), Ended(None, awaited=True)
    ended = Ended(ItemOutcome("a", End.ACKNOWLEDGED, "", b"", ALICE), awaited=True)
    answers = iter([gone, waits, gone, ended])

    class Ending:
        async def ask(self, _command: object) -> object:
            return next(answers)

    path = paths.read(b"/messages/jobs/a")
    assert path is not None
    request = ApiRequest(path, ALICE, {"wait": "5"}, wants=negotiation.JSON)
    shown = await handlers.show_message(Ending(), request)  # type: ignore[arg-type]  # no more of a core is needed
    assert shown.status == 200 and b"acknowledged" in shown.body


def test_temporary_errors_say_when_to_ask_again() -> None:
    """Each status that is temporary has Retry-After, and each problem a detail."""
    for problem in Problem:
        told = errors.fault(MalformedRequest(problem))
        assert errors.document(told)["detail"] and errors.document(told)["status"] == ERRORS[problem].http
        assert ("Retry-After" in told.headers) == (told.status in {429, 503, 504, 507})


@pytest.mark.parametrize(
    ("accept", "kind"),
    [
        ("", negotiation.ATOM),
        ("*/*", negotiation.ATOM),
        ("application/json", negotiation.JSON),
        ("application/*;q=0.5, application/json", negotiation.JSON),
        ("application/json;q=0.4, application/atom+xml;q=0.5", negotiation.ATOM),
        ("application/json, */*;q=0", negotiation.JSON),
        ("APPLICATION/JSON ; q=1", negotiation.JSON),
        ("text/html, */*;q=0.1", negotiation.ATOM),
    ],
)
def test_wanted(accept: str, kind: str) -> None:
    """RFC 9110 §12.5.1: the most exact range decides, then the quality, then what the RESTful Queue has."""
    assert negotiation.choose_kind(accept) == kind


@pytest.mark.parametrize("accept", ["text/html", "application/json;q=0", "application/*;q=nonsense", "*/*;q=0"])
def test_not_acceptable(accept: str) -> None:
    """A client that accepts neither is refused."""
    with pytest.raises(Fault) as refused:
        negotiation.choose_kind(accept)
    assert refused.value.status == 406


def test_children() -> None:
    """R5: a part of the tree has queues, parts, and names that are both; names that are no paths stay as they are."""
    names = ["uk", "uk/books", "uk/books/old", "uk/toys/new", "ukraine", "uk//odd", "uk/"]
    assert views.children(names, "uk") == [
        Child("uk/books", is_queue=True),
        Child("uk/toys", is_queue=False),
        Child("uk//odd", is_queue=True),
    ]
    assert views.children(["/a", "b/c"], "") == [Child("/a", is_queue=True), Child("b", is_queue=False)]


def test_rates() -> None:
    """A second's worth at once, then as fast as the bucket fills; each JID has its own."""
    now = [0.0]
    limited = rate_limit.RateLimit(2, lambda: now[0])
    assert [limited.wait(ALICE) for _ in range(3)] == [0, 0, 1]
    assert limited.wait(BOB) == 0
    now[0] = 0.5
    assert [limited.wait(ALICE) for _ in range(2)] == [0, 1]
    slow = rate_limit.RateLimit(0.25, lambda: now[0])
    assert [slow.wait(ALICE), slow.wait(ALICE)] == [0, 4]
    assert {rate_limit.RateLimit(0).wait(ALICE) for _ in range(100)} == {0}


def test_rates_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many JIDs ask, only those that ask fast are remembered."""
    monkeypatch.setattr(rate_limit, "KNOWN_MOST", 10)
    now = [0.0]
    limited = rate_limit.RateLimit(1, lambda: now[0])
    for number in range(100):
        now[0] += 2
        assert limited.wait(Jid(f"{number}@x")) == 0
    assert len(limited._buckets) <= 10


@pytest.mark.parametrize("content_type", ["text", "a/b/c", "a b/c", "text/plain\r\nX: y", "é/x", "a/" + "b" * 300])
def test_what_is_no_type(content_type: str) -> None:
    """An invalid media type is refused, so no door ever has to write it."""
    with pytest.raises(Fault) as refused:
        requests.pack_envelope(b"x", content_type, {})
    assert refused.value.status == 415


def test_traces() -> None:
    """Issue 8: a message belongs to the trace of its request; without a valid one, to none."""
    parent = f"00-{'1' * 32}-{'2' * 16}-01"
    for given, found in (({"traceparent": parent}, {"traceparent": parent}), ({"traceparent": "x"}, {}), ({}, {})):
        request = ApiRequest(paths.ResourcePath(paths.QUEUE, "jobs"), ALICE, {}, given, b"x")
        assert dict(codec.unpack(requests.publish(request, None).envelope).headers) == found

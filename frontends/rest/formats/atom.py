"""Writes queues and messages as Atom (RFC 4287), in pages (RFC 5005 §3). Pure."""

import re
from typing import Final
from urllib.parse import quote
from xml.sax.saxutils import escape, quoteattr

from broker.model.times import moment
from frontends.rest import paths
from frontends.rest.formats.views import Child, HeldMessages, Lock, Message, Page
from frontends.rest.http import negotiation

ATOM: Final = "http://www.w3.org/2005/Atom"
STATES: Final = "urn:stanzaq:0:state"
KINDS: Final = "urn:stanzaq:0:kind"
COUNTS: Final = "urn:stanzaq:0"

_FORBIDDEN: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def page(shown: Page) -> bytes:
    """Write a page of a queue or the tree."""
    parts = _head(shown, _identity("queue", shown.name), shown.title or shown.name or "queues")
    if shown.following:
        parts.append(f"<link rel='next' href={quoteattr(shown.following)} type='{negotiation.ATOM}'/>")
    if shown.counted:
        counted = shown.counted
        parts.append(
            f"<counts xmlns='{COUNTS}' waiting='{counted.waiting}' delayed='{counted.delayed}'"
            f" in-flight='{counted.in_flight}' subscribers='{counted.subscribers}'/>"
        )
    parts += [_child(each) for each in shown.children]
    parts += [_entry(each, "<entry>") for each in shown.messages]
    return "".join([*parts, "</feed>"]).encode()


def message(shown: Message) -> bytes:
    """Write a message as a document of its own."""
    return _entry(shown, f"<entry xmlns='{ATOM}'>").encode()


def write_held(shown: HeldMessages) -> bytes:
    """Write the messages that a subscription holds."""
    parts = _head(shown, _identity("subscription", shown.href), shown.title)
    more, owned = (str(each).lower() for each in (shown.more, shown.owned))
    parts.append(f"<lease xmlns='{COUNTS}' expires='{moment(shown.expires_ms)}' more='{more}' owned='{owned}'/>")
    return "".join([*parts, *(_entry(each, "<entry>") for each in shown.messages), "</feed>"]).encode()


def _head(shown: Page | HeldMessages, identity: str, title: str) -> list[str]:
    # A feed must have a time of change (RFC 4287 §4.1.1); an empty one gets 1970.
    updated = max((each.published_ms for each in shown.messages), default=0)
    return [
        f"<feed xmlns='{ATOM}'>",
        f"<id>{identity}</id>",
        f"<title>{_text(title)}</title>",
        f"<updated>{moment(updated)}</updated>",
        "<author><name>stanzaq</name></author>",
        f"<link rel='self' href={quoteattr(shown.href)} type='{negotiation.ATOM}'/>",
    ]


def _child(shown: Child) -> str:
    kind = "queue" if shown.is_queue else "directory"
    return (
        f"<entry><id>{_identity('queue', shown.name)}</id><title>{_text(shown.name)}</title>"
        f"<updated>{moment(0)}</updated><category scheme='{KINDS}' term='{kind}'/>"
        f"<link rel='alternate' href={quoteattr(paths.queue(shown.name))} type='{negotiation.ATOM}'/>"
        f"<content type='text'>{kind}</content></entry>"
    )


def _entry(shown: Message, begin: str) -> str:
    return (
        f"{begin}<id>{_identity('message', shown.node, shown.item_id)}</id><title>{_text(shown.item_id)}</title>"
        f"<updated>{moment(shown.published_ms)}</updated><author><name>{_text(shown.publisher)}</name></author>"
        f"<category scheme='{STATES}' term='{shown.state}'/><category scheme='{KINDS}' term='message'/>"
        f"<link rel='alternate' href={quoteattr(shown.href)} type='{negotiation.ATOM};type=entry'/>"
        f"<summary>{_text(shown.state)}</summary>{_lock(shown.lock) if shown.lock else ''}{_content(shown)}</entry>"
    )


def _lock(lock: Lock) -> str:
    """Write where to acknowledge the message (RFC 5023 §11.1), and its other actions."""
    links = "".join(f"<link rel='{COUNTS}:{action}' href={quoteattr(href)}/>" for action, href in lock.actions.items())
    return (
        f"<link rel='edit' href={quoteattr(lock.href)}/>{links}"
        f"<lock xmlns='{COUNTS}' attempt='{lock.attempt}' expires='{moment(lock.expires_ms)}'/>"
    )


def _content(shown: Message) -> str:
    if shown.element is not None:
        # A name of a type may have an ampersand and an apostrophe (RFC 9110 §5.6.2).
        kind = escape(negotiation.drop_parameters(shown.content_type), {"'": "&apos;"})
        return f"<content type='{kind}'>{shown.element.decode()}</content>"
    if negotiation.drop_parameters(shown.content_type) == "text/plain":
        try:
            text = shown.body.decode()
        except UnicodeDecodeError:
            text = "\0"
        if not _FORBIDDEN.search(text):
            return f"<content type='text'>{escape(text, {chr(13): '&#13;'})}</content>"
    return f"<content type={quoteattr(shown.content_type)} src={quoteattr(shown.content_href)}/>"


def _identity(kind: str, *names: str) -> str:
    """Return a permanent id: that of a message does not depend on the page that shows it."""
    return f"urn:stanzaq:0:{kind}:" + ":".join(quote(name, safe="") for name in names)


def _text(text: str) -> str:
    return escape(_FORBIDDEN.sub("�", text))

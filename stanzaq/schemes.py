"""Chooses the transport by the scheme of a URL, and imports only that one. Must not know what a transport does."""

from dataclasses import replace
from importlib.util import find_spec
from typing import Final
from urllib.parse import urlsplit

from stanzaq.errors import StanzaqError
from stanzaq.transport.account import Account, HttpAccount, Password, Tls
from stanzaq.transport.interface import Sender, Transport

_GROUP_BYTES: Final = 255
"""The longest name of a group that the service accepts."""


def account(url: str, service: str | None, password: Password, address: str | None, tls: Tls) -> Account | HttpAccount:
    """Check the arguments of a worker or publisher; raises ValueError with the fault and its remedy."""
    if urlsplit(url).scheme in {"http", "https"}:
        return HttpAccount.read(url, service, password, address, tls)
    return Account.read(url, service, password, address, tls)


def keep_resource(account: Account | HttpAccount, resource: str) -> Account | HttpAccount:
    """Return an account that connects with the same resource in each run."""
    if isinstance(account, HttpAccount):
        return account
    return replace(account, jid=f"{account.jid.partition('/')[0]}/{resource}")


def check_group(account: Account | HttpAccount, group: str | None) -> str:
    """Return the name of a worker's group; empty if it has none. Raises ValueError with the fault and its remedy."""
    if group is None:
        return ""
    is_http = isinstance(account, HttpAccount)
    if is_http:
        msg = "group= needs XMPP: over HTTP a worker gets items of partitions that nobody owns: leave it out, or write xmpp://"
        raise ValueError(msg)
    if not (group.isprintable() and " " not in group and 0 < len(group.encode()) <= _GROUP_BYTES):
        msg = f"group={group!r}: write a name of 1 to {_GROUP_BYTES} bytes that is printable and has no blanks, e.g. billing"
        raise ValueError(msg)
    return group


def worker(account: Account | HttpAccount, *, group: str) -> Transport:
    """Return the transport of a worker. Raises StanzaqError if a package is missing."""
    if isinstance(account, HttpAccount):
        _check_extra()
        from stanzaq.http.worker import HttpTransport  # noqa: PLC0415

        return HttpTransport(account)
    from stanzaq.xmpp.worker import XmppTransport  # noqa: PLC0415

    return XmppTransport(account, group=group)


def sender(account: Account | HttpAccount) -> Sender:
    """Return the transport of a publisher. Raises StanzaqError if a package is missing."""
    if isinstance(account, HttpAccount):
        _check_extra()
        from stanzaq.http.connection import HttpConnection  # noqa: PLC0415
        from stanzaq.http.publisher import HttpSender  # noqa: PLC0415

        return HttpSender(HttpConnection(account))
    from stanzaq.xmpp.connection import XmppConnection  # noqa: PLC0415
    from stanzaq.xmpp.publisher import XmppSender  # noqa: PLC0415

    return XmppSender(XmppConnection(account))


def _check_extra() -> None:
    if find_spec("aiohttp") is None:
        msg = "the library needs aiohttp for HTTP: pip install 'stanzaq[http]'"
        raise StanzaqError(msg)

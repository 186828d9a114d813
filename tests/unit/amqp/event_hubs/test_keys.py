"""Tokens of Event Hubs: their JID, their scope and their expiry."""

import hmac
from base64 import b64encode
from urllib.parse import quote_plus

import pytest

from broker.model.names import Jid
from frontends.amqp.auth.shared_keys import Grant, Grants, Keys, UntrustedToken

KEY = "a-key-of-forty-characters-or-a-few-more+="
KEYS = Keys(f"one Alice@example.org {KEY}\n\n  two  bob@example.org  {KEY[::-1]}\n")


def token(
    path: str = "sb://host/log",
    until: str = "100",
    name: str = "one",
    key: str = KEY,
    form: str = "sr={},sig={},se={},skn={}",
) -> str:
    """Sign one, with its fields in an order of its own."""
    path = quote_plus(path)
    signature = b64encode(hmac.digest(key.encode(), f"{path}\n{until}".encode(), "sha256")).decode()
    fields = dict(zip(("sr", "sig", "se", "skn"), (path, quote_plus(signature), until, quote_plus(name)), strict=True))
    order = [part.split("=")[0] for part in form.split(",")]
    return "SharedAccessSignature " + "&".join(f"{field}={fields[field]}" for field in order)


@pytest.mark.parametrize(
    ("said", "path"),
    [
        (token(), "log"),
        (token(form="skn=,se=,sig=,sr="), "log"),
        (token("amqps://host:5671/a/b/"), "a/b"),
        (token("sb://host/"), ""),
        (token("sb://host/log/consumergroups/g"), "log/ConsumerGroups/g"),
        (token("sb://höst/lög"), "lög"),
    ],
)
def test_believed(said: str, path: str) -> None:
    """P1: a token that is signed with a known key grants its path to that key's JID."""
    grant = KEYS.grant(said, 99.0)
    assert (grant.jid, grant.path, grant.ends()) == ("alice@example.org", path, 100.0)


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (token(key=KEY[::-1]), "not signed"),
        (token(name="two"), "not signed"),
        (token(name="nobody"), "not signed"),
        (token().replace("log", "lot"), "not signed"),
        (token().replace("se=100", "se=101"), "not signed"),
        (token().replace("sig=", "sig=A"), "not signed"),
        (token(until="99"), "expired"),
        (token(until="-1"), "expired"),
        (token(until="١٢٣"), "expired"),
        (token(until="9" * 400), "expired"),
        (token(until=""), "expired"),
        (token(until="1e9"), "expired"),
        ("", "not a shared access signature"),
        ("Bearer x", "not a shared access signature"),
        ("SharedAccessSignature ", "has sr"),
        (token() + "&se=200", "has sr"),
        (token().replace("&skn=one", ""), "has sr"),
        (token() + "&" * 5_000, "not a shared access signature"),
    ],
)
def test_not_believed(said: str, why: str) -> None:
    """P1, Guarantee 7: an unsigned, expired or malformed token grants nothing."""
    with pytest.raises(UntrustedToken, match=why):
        KEYS.grant(said, 99.0)


def test_opens() -> None:
    """P1: a path includes all below it, and nothing that only begins alike; a host's root includes all of it."""
    grants = Grants()
    assert not grants.opens("log", 0) and not grants.valid(0)
    grants.add(KEYS.grant(token(), 0))
    assert [grants.opens(path, 99) for path in ("log", "log/ConsumerGroups/g", "logs", "", "lo")] == [
        True,
        True,
        False,
        False,
        False,
    ]
    assert not grants.opens("log", 100)
    grants.add(KEYS.grant(token(until="200"), 0))
    assert grants.opens("log", 100) and grants.valid(199) and not grants.valid(200)
    grants.add(KEYS.grant(token("sb://host", "300"), 0))
    assert grants.opens("anything", 299)


def test_one_peer() -> None:
    """P1, Guarantee 6: a connection has one JID and a bounded number of paths."""
    grants = Grants()
    grants.add(KEYS.grant(token(), 0))
    with pytest.raises(UntrustedToken, match="another JID"):
        grants.add(KEYS.grant(token(name="two", key=KEY[::-1]), 0))
    for number in range(99):
        grants.add(Grant(Jid("alice@example.org"), str(number), lambda: 100.0))
    with pytest.raises(UntrustedToken, match="too many"):
        grants.add(Grant(Jid("alice@example.org"), "more", lambda: 100.0))
    assert not Keys("") and KEYS


def test_replaced() -> None:
    """A key that is removed, changed or given to another ends what it has granted; a name that changes ends nothing."""
    for lines, stays in (
        (f"other alice@example.org {KEY}", True),
        ("", False),
        (f"one alice@example.org {KEY[::-1]}", False),
        (f"one bob@example.org {KEY}", False),
    ):
        keys, grants = Keys(f"one alice@example.org {KEY}"), Grants()
        grants.add(keys.grant(token(), 0))
        keys.replace(lines)
        assert grants.valid(0) is stays

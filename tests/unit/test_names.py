"""Names of things."""

import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.model.names import (
    Partition,
    bare_jid,
    domain,
    is_group,
    is_jid,
    is_printable,
    lower_jid,
    prepare_jid,
    read_account_or_domain,
    read_affiliate,
    read_bare_jid,
    read_jid,
    resource,
)


def test_jids() -> None:
    """RFC 7622: the resource begins at the first slash and may hold more of them."""
    assert (bare_jid("a@x/b/c"), resource("a@x/b/c")) == ("a@x", "b/c")
    assert (bare_jid("a@x"), resource("a@x")) == ("a@x", "")


def test_typed_jids() -> None:
    """Servers lower the case of all but the resource; a person need not."""
    assert lower_jid(" Alice@Example.ORG/Home ") == "alice@example.org/Home"


@pytest.mark.parametrize(
    ("form", "prepared"),
    [
        ("MALLORY@Example.ORG.", "mallory@example.org"),
        ("Example.ORG./Home ", "example.org/Home "),
        # Width, normalisation and IDNA: RFC 7622 §3.2, §3.3.
        ("\uff2dallory@\uff25xample\u3002org", "mallory@example.org"),
        ("e\u0301ve@x/e\u0301\u3000\u00a0\uff21", "\u00e9ve@x/\u00e9  \uff21"),
        ("a@XN--BCHER-KVA.example", "a@b\u00fccher.example"),
        ("a@B\u00dcCHER.example.", "a@b\u00fccher.example"),
        ("a@xn--\u00fc.xn--.example", "a@xn--\u00fc.xn--.example"),
        ("a@x..", "a@x.."),
        ("a@[2001:DB8::1]", "a@[2001:db8::1]"),
        # Ejabberd 23.01 takes these for one account, and its clients sign in by any of them.
        ("Stra\u00dfe@x", "strasse@x"),
        ("\u03a3\u0391\u03a3@x", "\u03c3\u03b1\u03c3@x"),
        ("\u03c3\u03b1\u03c2@x", "\u03c3\u03b1\u03c3@x"),
        ("\ufb01n@x", "fin@x"),
        ("\u0130@x", "i\u0307@x"),
        ("mal\u00adlory@x", "mallory@x"),
        # It knows Unicode 3.2 only, where these have no small letters: nothing could be sent to them.
        ("\u04c0@x", "\u04c0@x"),
        ("\u10a0@x", "\u10a0@x"),
        # Of later versions a server of RFC 7622 takes these for one.
        ("\U0001e900\ua64a@x", "\U0001e922\ua64b@x"),
        # What would get a delimiter is left as it is: it would become another's JID.
        ("admin\uff20example.org\uff0fX@evil.example", "admin\uff20example.org\uff0fX@evil.example"),
        ("admin@example.org\uff0f.Evil.example", "admin@example.org\uff0f.Evil.example"),
        # So is what would be empty: its sender is answered.
        (".", "."),
        ("a@\u00ad", "a@\u00ad"),
        # Preparing so much would take long, and it is no JID.
        ("\u00c9" * 3_072, "\u00c9" * 3_072),
    ],
)
def test_forms_of_one_jid(form: str, prepared: str) -> None:
    """RFC 7622: all forms of an account are one text, by the rules of servers that follow it and of those before."""
    assert prepare_jid(form) == prepared == prepare_jid(prepared)


@given(st.text())
def test_prepared_once(text: str) -> None:
    """What is prepared stays as it is, and has as many parts as before."""
    prepared = prepare_jid(text)
    assert prepare_jid(prepared) == prepared
    assert [prepared.count(mark) for mark in "@/"] == [text.count(mark) for mark in "@/"]


@given(st.text(min_size=1), st.text("0123456789abcdef", min_size=1), st.integers(0, 99))
def test_partitions_are_read_back(node: str, incarnation: str, number: int) -> None:
    """Whatever a node is called, its partition's name says which it is."""
    partition = Partition(node, incarnation, number)
    assert Partition.parse(str(partition)) == partition


@pytest.mark.parametrize("text", ["", "a", "a/0", "a@b", "@b/0", "a@/0", "a@b/x"])
def test_what_is_no_partition(text: str) -> None:
    """A peer may send anything as the name of a partition: an invalid one is a ValueError."""
    with pytest.raises(ValueError):  # noqa: PT011  (two places raise it, in words of their own)
        Partition.parse(text)


@pytest.mark.parametrize(
    "text", ["a@x", "x", "a@x.org/b@c /d", "a@[::1]", "engine.example.org.", "ü@xn--bcher-kva.ch", "a" * 1023]
)
def test_what_is_a_jid(text: str) -> None:
    """RFC 7622 §3.1: a domain, and parts around it that are not empty."""
    assert is_jid(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "@x",
        "a@",
        "a@x/",
        "/b",
        "not a jid",
        "a@b@c",
        "a b@x",
        "a@x..y",
        "a@x..",
        "<a>@x",
        "a:b@x",
        "a@x\x01",
        "a" * 1024,
    ],
)
def test_what_is_no_jid(text: str) -> None:
    """RFC 7622 §3.2, §3.3: neither part is empty or longer than 1023 bytes, and some characters are in neither."""
    assert not is_jid(text)


@pytest.mark.parametrize("text", ["romeo@@example.org", "a b@x", "a@x\u200b", "@x", "a@", ""])
def test_typed_text_that_is_no_jid(text: str) -> None:
    """A person's mistake is named where it is typed, not kept as somebody whom no server knows."""
    with pytest.raises(ValueError, match="is not a JID"):
        read_jid(text)


def test_typed_accounts() -> None:
    """A person signs in with the bare JID of an account: a domain or a resource is none."""
    assert read_bare_jid(" Romeo@Example.org ") == "romeo@example.org" and read_jid("Example.org/A") == "example.org/A"
    for text in ("example.org", "romeo@example.org/phone", "romeo@@example.org", "ro meo@example.org"):
        with pytest.raises(ValueError, match=r"is not a bare JID, e\.g\. romeo@example\.org"):
            read_bare_jid(text)


def test_typed_accounts_and_domains() -> None:
    """A quota or a trust is for an account or for a whole domain."""
    assert read_account_or_domain(" Alice@X.example ") == "alice@x.example"
    assert read_account_or_domain("X.example") == domain("alice@x.example") == domain("x.example") == "x.example"
    for text in ("x/phone", "a@x/phone", "@x", "a@@x", "a@x\u200b", ""):
        with pytest.raises(ValueError, match="is neither a bare JID nor a domain"):
            read_account_or_domain(text)


def test_typed_affiliates() -> None:
    """An affiliation is for an account, a domain, or a group of tokens, whose name stays as it is."""
    assert read_affiliate(" Alice@X.example/phone ") == "alice@x.example" and read_affiliate("X.example") == "x.example"
    for group in ("group:/Team/a", "group:a@x.example", "group:" + "é" * 100):
        assert read_affiliate(f" {group} ") == group and is_group(group) and not is_jid(group)
    for text in ("group:", "group: ", "group:two words", "group:a\u200b", "group:" + "é" * 101, "group:\ud800"):
        with pytest.raises(
            ValueError, match="names no group: write group: and its name, 1 to 200 bytes without blanks"
        ):
            read_affiliate(text)
    for text in ("Group:team", "@x", "a@group:team"):
        with pytest.raises(ValueError, match="is not a JID"):
            read_affiliate(text)


def test_printable() -> None:
    """P33: a name has no character that controls, formats or separates, whatever version of Unicode a frontend has."""
    refused = {code for code in range(sys.maxunicode + 1) if not is_printable(chr(code))}
    kinds = {unicodedata.category(chr(code)) for code in refused}
    assert kinds <= {"Cc", "Cf", "Cs", "Zs", "Zl", "Zp", "Cn"} and not is_printable("a\ud800") and is_printable("")
    # What some Unicode prints is printable in every other, but for a few that have no meaning in any.
    assert not any(chr(code).isprintable() for code in refused) and is_printable("\u0378\U0001f9ff é\ue000")

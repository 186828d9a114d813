"""The field Forwarded: what trusted proxies wrote, and nothing else."""

from ipaddress import ip_network

import pytest

from frontends.rest.http.forwarded import find_sender

PROXIES = tuple(map(ip_network, ("10.0.0.0/8", "fd00::/8")))


@pytest.mark.parametrize(
    ("peer", "forwarded", "sender"),
    [
        ("10.0.0.1", "for=192.0.2.1", "192.0.2.1"),
        ("10.0.0.1", 'proto=https; For="192.0.2.1:4711";host=x', "192.0.2.1"),
        ("fd00::1", 'for="[2001:db8::1]:80"', "2001:db8::1"),
        ("10.0.0.1", "for=192.0.2.9, for=192.0.2.1, for=10.0.0.2", "192.0.2.1"),
        ("10.0.0.1", "for=192.0.2.1, for=_hidden", "10.0.0.1"),
        ("10.0.0.1", "for=unknown", "10.0.0.1"),
        ("10.0.0.1", "", "10.0.0.1"),
        ("192.0.2.7", "for=192.0.2.1", "192.0.2.7"),
        ("", "for=192.0.2.1", ""),
        ("10.0.0.1", "for=10.0.0.2, by=x", "10.0.0.1"),
        ("10.0.0.1", 'for="', "10.0.0.1"),
    ],
)
def test_sender(peer: str, forwarded: str, sender: str) -> None:
    """RFC 7239: the last address that no trusted proxy has, as far as they tell it."""
    assert find_sender(peer, forwarded, PROXIES) == sender


def test_nobody_is_trusted() -> None:
    """Without a trusted proxy the field means nothing."""
    assert find_sender("10.0.0.1", "for=192.0.2.1", ()) == "10.0.0.1"

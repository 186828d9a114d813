"""Who sent a request that came through proxies: the field Forwarded (RFC 7239), as far as proxies of ours wrote it. Pure."""

import re
from collections.abc import Sequence
from ipaddress import IPv4Network, IPv6Network, ip_address
from typing import Final

Networks = Sequence[IPv4Network | IPv6Network]

_FOR: Final = re.compile(
    r'(?:^|;)\s*for\s*=\s*"?(?:\[([0-9a-f:.]+)\](?::\d+)?|([0-9.]+)(?::\d+)?)"?\s*(?:;|$)', re.IGNORECASE
)


def find_sender(peer: str, forwarded: str, proxies: Networks) -> str:
    """Return the address of the sender: the last one that no trusted proxy has; of what others wrote nothing is believed."""
    found = peer
    for part in reversed(forwarded.split(",")) if forwarded and proxies else ():
        named = _FOR.search(part.strip())
        if not _is_in(found, proxies) or named is None:
            break
        found = named[1] or named[2]
    return found


def _is_in(address: str, networks: Networks) -> bool:
    try:
        found = ip_address(address.partition("%")[0])
    except ValueError:
        return False
    return any(found in network for network in networks)

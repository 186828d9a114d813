"""Reads the URL of a Redis: one server, a cluster, or a master that sentinels watch. Must not connect to anything.

redis-py reads the URL of one server; for several it has `+cluster` or `+sentinel` and more hosts.
"""

import re
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, unquote, urlsplit

from redis.asyncio import BlockingConnectionPool
from redis.asyncio.connection import parse_url

from broker.address import Address

_SCHEMES: Final = (
    "redis",
    "rediss",
    "unix",
    "embedded",
    "redis+cluster",
    "rediss+cluster",
    "redis+sentinel",
    "rediss+sentinel",
)
_LOGIN: Final = "sentinel_"
"""How the options begin that have the user and the password of sentinels."""

_CERTIFICATES: Final = frozenset({"ssl_ca_certs", "ssl_certfile", "ssl_keyfile"})

_DATABASE: Final = re.compile(r"/?[0-9]*", re.ASCII)
_SEVERAL: Final = re.compile(r"(rediss?)\+(cluster|sentinel)://(?:([^@/?]*)@)?([^@/?]*)(?:/([^?]*))?(?:\?(.*))?")


class Topology(Enum):
    """How the server of a key is found."""

    SERVER = "server"
    CLUSTER = "cluster"
    SENTINEL = "sentinel"


@dataclass(frozen=True, slots=True)
class RedisUrl:
    """The content of a URL: `seeds` are the nodes or sentinels to ask, `options` the arguments of redis-py's connections.

    Sentinels have a user and a password of their own, so connections to them have other arguments.
    """

    kind: Topology
    options: dict[str, Any]
    seeds: tuple[Address, ...] = ()
    service: str = ""
    sentinel_options: dict[str, Any] = field(default_factory=dict)


def read_url(url: str) -> RedisUrl:
    """Read a URL; a ValueError says what is wrong and repeats nothing that may be a password."""
    _check_escapes(url)
    several = _SEVERAL.fullmatch(url)
    if several is None:
        return RedisUrl(Topology.SERVER, _options(url))
    scheme, kind, user, hosts, path, query = several.groups(default="")
    of = Topology(kind)
    seeds = tuple(_address(host, 26379 if of is Topology.SENTINEL else 6379) for host in hosts.split(","))
    service, _, database = path.partition("/") if of is Topology.SENTINEL else ("", "", path)
    if of is Topology.SENTINEL and not service:
        msg = "it does not name the service that the sentinels watch: write /SERVICE after them"
        raise ValueError(msg)
    if not (database or "0").isdecimal():
        msg = "the host, port or database in it cannot be read"
        raise ValueError(msg)
    login, query = _take_login(query) if of is Topology.SENTINEL else ({}, query)
    options = _options(f"{scheme}://{user}@localhost/{database or 0}?{query}")
    if of is Topology.CLUSTER and options["db"] != 0:
        msg = "a cluster has only database 0"
        raise ValueError(msg)
    del options["host"]
    if of is Topology.CLUSTER:
        return RedisUrl(of, options, seeds)
    plain = {name: value for name, value in options.items() if name not in {"username", "password", "db"}}
    return RedisUrl(of, options, seeds, unquote(service), plain | login)


def add_sentinel_login(url: str, **login: str) -> str:
    """Return a URL with the user and password of its sentinels, those that are not empty; raises ValueError."""
    options = "&".join(f"{_LOGIN}{name}={quote(value, safe='')}" for name, value in login.items() if value)
    if not options:
        return url
    if not url.partition("://")[0].endswith("+sentinel"):
        msg = "it names no sentinels, and there is a user or password for them"
        raise ValueError(msg)
    return f"{url}{'&' if '?' in url else '?'}{options}"


def _take_login(query: str) -> tuple[dict[str, str], str]:
    """Return the sentinels' user and password in a query, and the rest of it, which is for redis-py."""
    login, rest = {}, []
    for option in query.split("&"):
        name, _, value = option.partition("=")
        if name in {f"{_LOGIN}username", f"{_LOGIN}password"}:
            login[name.removeprefix(_LOGIN)] = unquote(value)
        else:
            rest.append(option)
    return login, "&".join(rest)


def _check_escapes(url: str) -> None:
    """Refuse characters that end a user or password early, since what follows them would be ignored or misread."""
    rest = url.partition("://")[2]
    login, at, _ = rest.rpartition("@")
    # An option may have an @, too.
    before = login if at and "=" not in login.partition("?")[2] else ""
    if found := next((each for each in "/?[]" if each in before), "#" if "#" in rest else ""):
        msg = f"its user or password has a {found} that must be written {quote(found, safe='')}"
        raise ValueError(msg)


def _address(text: str, port: int) -> Address:
    try:
        read = urlsplit(f"//{text}")
        # Reading the port fails when it is not a port number.
        address = Address(read.hostname or "", port if read.port is None else read.port)
    except ValueError:
        address = Address("", 0)
    if not address.host or not address.port or " " in address.host:
        msg = "the host, port or database in it cannot be read"
        raise ValueError(msg)
    return address


def _options(url: str) -> dict[str, Any]:
    msg = "the host, port or database in it cannot be read"
    try:
        options: dict[str, Any] = {**parse_url(url)}
    except ValueError:
        raise ValueError(msg) from None
    # redis-py takes a database that is no number for the first one.
    if "path" not in options and not _DATABASE.fullmatch(urlsplit(url).path):
        raise ValueError(msg)
    try:
        # Never connected: making it checks the options after the question mark.
        BlockingConnectionPool(driver_info=None, **options).make_connection()  # type: ignore[no-untyped-call]
    except (TypeError, ValueError):
        msg = "redis-py does not know an option in it"
        raise ValueError(msg) from None
    return options


def check_url(value: object) -> object:
    """Return a valid URL unchanged; raises ValueError, whose text repeats nothing that may be a password."""
    if not isinstance(value, str):
        return value
    scheme, there, _ = value.partition("://")
    if scheme not in _SCHEMES or not there:
        msg = "not the URL of a Redis"
        raise ValueError(msg)
    if scheme == "embedded":
        return value
    read = read_url(value)
    if scheme == "unix" and not read.options.get("path"):
        msg = "it names no socket"
        raise ValueError(msg)
    for name in _CERTIFICATES & read.options.keys():
        try:
            Path(read.options[name]).read_bytes()
        except OSError as fault:
            msg = f"{name} in it: {fault}"
            raise ValueError(msg) from None
    return value

"""Bearer tokens whose keys come from a URL that is down, slow or wrong; and which keys are any."""

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from http.client import HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.error import URLError

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from structlog.testing import capture_logs

from broker.model.names import Jid
from broker.model.roles import Role, Said
from broker.token_keys import read_keys
from frontends.logins import tokens
from frontends.logins.failed_logins import FailedLogins
from frontends.logins.passwords import Passwords
from frontends.logins.tokens import KEYS_SECONDS, LEEWAY_SECONDS, Tokens, Undecided, Untrusted
from frontends.rest.auth.identity import Identity
from frontends.rest.errors import Fault
from tests.waiting import PATIENCE_SECONDS

ALICE = Jid("alice@example.org")
KEY, OTHER = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
PEM = (
    KEY.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo).decode()
)
URL = "https://login.example.org/keys"


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a busy machine take its time."""
    monkeypatch.setattr(tokens, "FETCH_SECONDS", PATIENCE_SECONDS)


def signed(kid: str | None, key: ec.EllipticCurvePrivateKey = KEY, **claims: Any) -> str:  # noqa: ANN401
    """Make a token of alice's."""
    said = {"sub": ALICE, "iss": "i", "aud": "a", "exp": int(time.time()) + 600, **claims}
    return jwt.encode(said, key, "ES256", {"kid": kid} if kid else None)


def jwk(kid: str | None, key: ec.EllipticCurvePrivateKey = KEY, **members: str) -> dict[str, str]:
    """Write a public key."""
    said = json.loads(jwt.algorithms.ECAlgorithm.to_jwk(key.public_key()))
    return {**said, **({"kid": kid} if kid else {}), **members}


def jwks(*keys: object) -> str:
    """Write a set of them."""
    return json.dumps({"keys": keys})


class Endpoint:
    """Serves keys: a text, or an error, once it is let go."""

    def __init__(self, said: str | Exception) -> None:
        """Serve something at once."""
        self.said = said
        self.count = 0
        self.now = 0.0
        self.free = threading.Event()
        self.free.set()

    def tokens(self) -> Tokens:
        """Trust what it serves."""
        return Tokens(URL, "i", "a", "sub", fetch=self._fetch, clock=lambda: self.now)

    def _fetch(self, url: str) -> str:
        assert url == URL
        self.count += 1
        # A test that fails while it waits must not hang the loop's threads.
        self.free.wait(PATIENCE_SECONDS)
        if isinstance(self.said, Exception):
            raise self.said
        return self.said


async def fetched(trusting: Tokens) -> None:
    """Wait for the fetch under way."""
    if trusting._fetching:
        await trusting._fetching


async def note(claims: dict[str, Any], **settings: Any) -> Said:  # noqa: ANN401
    """Return what is noted of a token of alice's."""
    noted: list[tuple[Jid, Said]] = []

    async def take(*said: Any) -> None:  # noqa: ANN401
        noted.append(said)

    await Tokens(PEM, "i", "a", "sub", note=take, **settings).bearer(signed(None, **claims))
    ((jid, said),) = noted
    assert jid == ALICE
    return said


async def bearer(trusting: Tokens, token: str) -> Jid:
    """Return the JID of a token."""
    return (await trusting.bearer(token))[0]


@pytest.mark.parametrize(
    "lie",
    [
        "<html>maintenance</html>",
        "",
        "null",
        '{"keys": []}',
        '{"error": "x"}',
        '{"keys":' + "[" * 100_000,
        jwks({"kty": "oct", "k": "c2VjcmV0", "kid": "one"}),
        jwks(jwk("one", use="enc")),
        "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----",
        HTTPException("garbage"),
        RecursionError(),
        OSError("no route"),
    ],
)
async def test_what_is_no_key(lie: str | Exception) -> None:
    """Whatever is fetched instead of keys, the good ones stay, and the log says so once."""
    endpoint = Endpoint(jwks(jwk("one")))
    trusting = endpoint.tokens()
    assert await bearer(trusting, signed("one")) == ALICE
    endpoint.said, endpoint.now = lie, KEYS_SECONDS
    with capture_logs() as logs:
        assert await bearer(trusting, signed("one")) == ALICE
        await fetched(trusting)
        assert await bearer(trusting, signed("one")) == ALICE
    assert endpoint.count == 2 and [each["event"] for each in logs] == ["the keys of tokens cannot be fetched"]
    # Nor is another key called unknown while nobody knows.
    with pytest.raises(Undecided):
        await bearer(trusting, signed("two"))


async def test_known_keys_wait_for_nothing() -> None:
    """A slow endpoint delays no token of a known key; those of others share one fetch, and do not wait for ever."""
    endpoint = Endpoint(jwks(jwk("one")))
    trusting = endpoint.tokens()
    assert await bearer(trusting, signed("one")) == ALICE
    endpoint.free.clear()
    endpoint.said, endpoint.now = jwks(jwk("one"), jwk("two", OTHER)), KEYS_SECONDS
    try:
        waiting = [asyncio.create_task(bearer(trusting, signed("two", OTHER))) for _ in range(3)]
        # If this one waited, nothing would let the endpoint go.
        assert [await bearer(trusting, signed("one")) for _ in range(3)] == [ALICE] * 3
        assert not any(each.done() for each in waiting)
    finally:
        endpoint.free.set()
    assert await asyncio.gather(*waiting) == [ALICE] * 3
    assert endpoint.count == 2
    with pytest.raises(Untrusted, match="unknown key"):
        await bearer(trusting, signed("three"))
    assert endpoint.count == 2


async def test_no_keys_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A token is not refused for good when keys were never fetched: its bearer is told to ask again."""
    monkeypatch.setattr(tokens, "FETCH_SECONDS", 0.01)
    endpoint = Endpoint(jwks(jwk("one")))
    endpoint.free.clear()
    trusting = endpoint.tokens()
    identity = Identity(Passwords("", FailedLogins("test")), trusting, None, FailedLogins("test"))
    with pytest.raises(Fault) as refused:
        await identity.of(f"Bearer {signed('one')}", "::1")
    assert refused.value.status == 503 and refused.value.headers["Retry-After"]
    endpoint.free.set()
    await fetched(trusting)
    assert await bearer(trusting, signed("one")) == ALICE


async def test_keys_without_names() -> None:
    """RFC 7515 §4.1.4: a name is a hint. Keys without one are tried in turn, and so are all for a token without one."""
    for keys in ((None, None), ("one", "two")):
        trusting = Tokens(jwks(jwk(keys[0]), jwk(keys[1], OTHER)), "i", "a", "sub")
        assert [await bearer(trusting, signed(None, key)) for key in (KEY, OTHER)] == [ALICE, ALICE]
        with pytest.raises(Untrusted, match="unknown key"):
            await bearer(trusting, signed(None, ec.generate_private_key(ec.SECP256R1())))
        with pytest.raises(Untrusted, match="expired"):
            await bearer(trusting, signed(None, exp=1))
        # Far away, and still a time in ms.
        assert await bearer(trusting, signed(None, exp=1e300)) == ALICE
    named = Tokens(jwks(jwk("one"), jwk("two", OTHER)), "i", "a", "sub")
    with pytest.raises(Untrusted, match="unknown key"):
        await bearer(named, signed("two", KEY))


@pytest.mark.parametrize("name", [None, "one"])
async def test_a_key_is_replaced(name: str | None) -> None:
    """A token of a key that has taken the place of another, without a name or under the same, is one of an unknown key."""
    endpoint = Endpoint(jwks(jwk(name)))
    trusting = endpoint.tokens()
    assert await bearer(trusting, signed(name)) == ALICE
    endpoint.said, endpoint.now = jwks(jwk(name, OTHER)), tokens.AGAIN_SECONDS
    assert await bearer(trusting, signed(name, OTHER)) == ALICE
    with pytest.raises(Untrusted, match="unknown key"):
        await bearer(trusting, signed(name))
    endpoint.said, endpoint.now = "", 2 * tokens.AGAIN_SECONDS
    with pytest.raises(Undecided):
        await bearer(trusting, signed(name))
    assert await bearer(trusting, signed(name, OTHER)) == ALICE


@pytest.fixture
def server() -> Iterator[tuple[str, dict[str, tuple[int, str]]]]:
    """Serve answers by their paths: a status, and a body or a location."""
    answers: dict[str, tuple[int, str]] = {}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, said = answers[self.path]
            self.send_response(status)
            if status == 302:
                self.send_header("Location", said)
            self.end_headers()
            self.wfile.write(said.encode())

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    serving = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=serving.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{serving.server_port}", answers
    serving.shutdown()
    serving.server_close()
    thread.join()


def test_fetch(server: tuple[str, dict[str, tuple[int, str]]], monkeypatch: pytest.MonkeyPatch) -> None:
    """A fetch follows no redirection to http, and has an end; a byte order mark is no part of the text."""
    url, answers = server
    answers |= {"/moved": (302, "/keys"), "/keys": (200, f"\ufeff{PEM}")}
    assert len(read_keys(tokens.fetch(f"{url}/keys"))) == 1
    with pytest.raises(URLError, match="not https"):
        tokens.fetch(f"{url}/moved")
    monkeypatch.setattr(tokens, "_KEYS_BYTES", 20)
    with pytest.raises(ValueError, match="too long"):
        tokens.fetch(f"{url}/keys")


@pytest.mark.parametrize(
    ("claims", "role"),
    [
        ({}, None),
        ({"groups": "team"}, Role.OPERATOR),
        ({"groups": ["other", "look", "team"]}, Role.OPERATOR),
        ({"groups": ["other", 7, None, {}]}, None),
        ({"groups": {"team": True}}, None),
        ({"groups": "look team"}, None),
    ],
)
async def test_roles(claims: dict[str, Any], role: Role | None) -> None:
    """The highest of the roles that values of a claim give is noted, with the token's times; any other form gives none."""
    given = {"look": Role.VIEWER, "team": Role.OPERATOR}
    until = int(time.time()) + 60
    times = {"exp": until, "iat": until - 100}
    noted = await note(claims | times, role_claim="groups", roles=given)
    assert noted == Said(role, until - 100, until + LEEWAY_SECONDS)


async def test_roles_within_a_claim() -> None:
    """A dot leads into a claim, unless a claim has that very name."""
    given = {"team": Role.ADMIN}
    forms: list[dict[str, Any]] = [
        {"realm": {"roles": ["team"]}},
        {"realm.roles": "team"},
        {"realm": "team"},
        {"realm": {"roles": {}}},
    ]
    noted = [await note(claims, role_claim="realm.roles", roles=given) for claims in forms]
    assert [said.role for said in noted] == [Role.ADMIN, Role.ADMIN, None, None]


@pytest.mark.parametrize(
    ("groups", "named"),
    [
        ("queue-team", ["queue-team"]),
        (["/a/b", "Team", "team", "team", "x@example.org", "é"], ["/a/b", "Team", "team", "x@example.org", "é"]),
        (["", " ", "two words", "line\n", "n\0l", "x" * 201, "x" * 200, 7, None, ["y"]], ["x" * 200]),
        ({"queue-team": True}, []),
        (None, []),
    ],
)
async def test_groups(groups: object, named: list[str]) -> None:
    """Values of a claim name groups, as they are, once each; what cannot have an affiliation is left out."""
    for claim, claims in (("groups", {"groups": groups}), ("realm.groups", {"realm": {"groups": groups}})):
        noted = await note(claims, group_claim=claim)
        assert noted.groups == tuple(f"group:{name}" for name in named) and noted.role is None
    assert (await note({"roles": ["a"]}, role_claim="roles", roles={"a": Role.VIEWER})).groups is None

"""Authentication: passwords and tokens, and nobody without them."""

import base64
import json
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from threading import Thread
from typing import Any

import bcrypt
import httpx
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from frontends.tools.servers.redis import RedisServer
from tests.doors.frontend import ALICE, BOB, HASH, PASSWORD
from tests.doors.rest.served import NO_TLS, RestFrontend, client, problem
from tests.doors.tokens import KEY, PEM, TRUSTED, signed

OTHER = rsa.generate_private_key(public_exponent=65_537, key_size=2_048)

Sign = Callable[..., str]


def jwks(**keys: rsa.RSAPrivateKey) -> bytes:
    """Write a set of public keys."""
    found = [
        {**json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(key.public_key())), "kid": kid, "use": "sig", "alg": "RS256"}
        for kid, key in keys.items()
    ]
    return json.dumps({"keys": found}).encode()


def bearing(frontend: RestFrontend, token: str) -> httpx.Response:
    """Request with a token."""
    return httpx.get(f"{frontend.url}/queues", headers={"Authorization": f"Bearer {token}"}, verify=NO_TLS)


@pytest.fixture(scope="module")
def trusting(redis: RedisServer) -> Iterator[RestFrontend]:
    """Provide a frontend that accepts tokens."""
    with RestFrontend(redis.url, JWT_KEYS=PEM, **TRUSTED) as frontend:
        yield frontend


def basic(words: bytes) -> dict[str, str]:
    """Write Basic credentials."""
    return {"Authorization": f"Basic {base64.b64encode(words).decode()}"}


_ADDRESSES = (f"192.0.2.{number}" for number in count(1))


def attempts(frontend: RestFrontend, words: str, most: int, address: str) -> list[int]:
    """Return the statuses of attempts to log in from an address."""
    head = {**basic(words.encode()), "Forwarded": f"for={address}"}
    return [httpx.get(f"{frontend.url}/queues", headers=head, verify=NO_TLS).status_code for _ in range(most)]


def test_guesses_are_slowed(redis: RedisServer) -> None:
    """Guesses of one account from one address are slowed, logged and counted; the account's owner is not, anywhere else."""
    with RestFrontend(redis.url, TRUSTED_PROXIES="127.0.0.1") as frontend:
        known, new = "192.0.2.1", "192.0.2.2"
        assert attempts(frontend, f"{ALICE}:{PASSWORD}", 1, known) == [200]
        assert attempts(frontend, f"{ALICE}:wrong", 7, known) == [401] * 5 + [429] * 2
        head = {**basic(f"{ALICE}:wrong".encode()), "Forwarded": f"for={known}"}
        early = httpx.get(f"{frontend.url}/queues", headers=head, verify=NO_TLS)
        assert problem(early) == (429, "too-fast") and int(early.headers["Retry-After"]) >= 1
        # Who was here lately, who comes from elsewhere, and who is another goes on.
        assert attempts(frontend, f"{ALICE}:{PASSWORD}", 1, known) == [200]
        assert attempts(frontend, f"{ALICE}:{PASSWORD}", 1, new) == [200]
        assert attempts(frontend, f"{BOB}:{PASSWORD}", 1, known) == [200]
        # All names that are none are one.
        assert [attempts(frontend, f"x{number}@x:x", 1, known)[0] for number in range(6)] == [401] * 5 + [429]
        lines = [json.loads(line) for line in frontend.log.splitlines() if "login failed" in line]
        assert {"account": ALICE, "address": known, "door": "rest"}.items() <= lines[0].items()
        assert 'stanzaq_failed_logins_total{door="rest"} 10.0' in frontend.probe("/metrics")[1]


@pytest.mark.parametrize("name", ["ALICE@Example.ORG.", " \uff41lice@example\u3002org "])
def test_forms_of_an_account(frontend: RestFrontend, trusting: RestFrontend, name: str) -> None:
    """RFC 7622: an account is one in all forms of its name."""
    assert httpx.get(f"{frontend.url}/queues", headers=basic(f"{name}:{PASSWORD}".encode())).status_code == 200
    assert bearing(trusting, signed(sub=name)).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {},
        basic(b"alice@example.org:wrong"),
        basic(b"alice@example.org"),
        basic(b"nobody@example.org:secret"),
        basic(b"alice@example.org:" + b"x" * 100),
        basic(b"alice@example.org:sec\0ret"),
        basic(b"\xff:secret"),
        {"Authorization": "Basic ***"},
        {"Authorization": "Bearer abc"},
        {"Authorization": "Negotiate abc"},
    ],
)
def test_without_credentials(frontend: RestFrontend, headers: dict[str, str]) -> None:
    """A request without credentials, or with wrong ones, is told how to authenticate, and nothing else."""
    for method, path in (("GET", "/queues"), ("PUT", "/queues/x"), ("GET", "/messages/a/b"), ("POST", "/batches/x")):
        # From an address of its own, which has not failed too often.
        sent = {**headers, "Forwarded": f"for={next(_ADDRESSES)}"}
        refused = httpx.request(method, frontend.url + path, headers=sent, verify=NO_TLS)
        assert problem(refused)[0] == 401
        assert refused.headers["WWW-Authenticate"] == 'Basic realm="stanzaq", charset="UTF-8"'


def test_by_password(frontend: RestFrontend) -> None:
    """Names are JIDs with the case rules of servers; the same JID owns its nodes at every door."""
    with client(frontend, "Alice@Example.ORG") as same, client(frontend) as alice:
        queue = same.post("/queues").headers["Location"]
        assert alice.delete(queue).status_code == 200
    assert httpx.get(f"{frontend.url}/openapi.json", verify=NO_TLS).status_code == 200


def test_guessing_blocks_nobody(redis: RedisServer) -> None:
    """Slow hashes are computed outside the loop: it keeps turning, and known clients are served."""
    slow = bcrypt.hashpw(b"secret", bcrypt.gensalt(12)).decode()
    with RestFrontend(redis.url, HTTP_PASSWORDS=f"{ALICE}:{slow}") as frontend, client(frontend) as alice:
        assert alice.get("/queues").status_code == 200
        guesses = [
            Thread(
                target=httpx.get,
                args=(f"{frontend.url}/queues",),
                kwargs={"headers": basic(b"alice@example.org:%d" % n), "timeout": 60, "verify": NO_TLS},
            )
            for n in range(8)
        ]
        for guess in guesses:
            guess.start()
        assert alice.get("/queues").status_code == 200
        assert any(guess.is_alive() for guess in guesses)
        for guess in guesses:
            guess.join()


def test_by_token(trusting: RestFrontend) -> None:
    """A token authenticates its subject, and passwords still work."""
    assert bearing(trusting, signed()).status_code == 200
    with client(trusting) as alice:
        assert alice.get("/queues").status_code == 200


@pytest.mark.parametrize(
    "token",
    [
        signed(aud="another"),
        signed(aud=None),
        signed(iss="https://evil.example.org"),
        signed(exp=int(time.time()) - 60),
        signed(exp=None),
        # A NumericDate is a number (RFC 7519 §2).
        signed(exp=str(int(time.time()) + 60)),
        signed(nbf="0"),
        signed(iat=True),
        signed(nbf=int(time.time()) + 600),
        signed(sub=None),
        signed(sub="alice"),
        signed(sub="alice@example.org/home"),
        signed(OTHER),
        # A public value is no secret to sign with.
        signed("x" * 64, "HS256"),
        signed(None, "none"),
        "a.b.c",
        signed()[:-8] + "AAAAAAAA",
    ],
)
def test_bad_tokens(trusting: RestFrontend, token: str) -> None:
    """A token of the wrong audience, issuer, time, key or algorithm is refused, with the reason."""
    refused = bearing(trusting, token)
    assert problem(refused) == (401, "invalid-token")
    assert 'Bearer realm="stanzaq", error="invalid_token"' in refused.headers["WWW-Authenticate"]


@pytest.fixture
def key_server() -> Iterator[tuple[str, dict[str, Any]]]:
    """Serve `body` at a URL, and count the requests."""
    served: dict[str, Any] = {"body": jwks(one=KEY), "count": 0}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            served["count"] += 1
            self.send_response(200)
            self.end_headers()
            self.wfile.write(served["body"])

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/jwks", served
    server.shutdown()
    server.server_close()
    thread.join()


def test_keys_from_a_url(redis: RedisServer, key_server: tuple[str, dict[str, Any]]) -> None:
    """Keys are fetched, and not again for every token that names an unknown one."""
    url, served = key_server
    with RestFrontend(redis.url, HTTP_PASSWORDS="", JWT_KEYS=url, **TRUSTED) as frontend:
        assert [bearing(frontend, signed(headers={"kid": "one"})).status_code for _ in range(3)] == [200] * 3
        assert [bearing(frontend, signed(OTHER, headers={"kid": f"k{n}"})).status_code for n in range(5)] == [401] * 5
        assert served["count"] == 1


def test_anonymous_by_setting_alone(redis: RedisServer) -> None:
    """Requests without credentials act as one JID only where a setting says so; wrong ones are still refused."""
    settings = {"HTTP_PASSWORDS": f"{ALICE}:{HASH}", "HTTP_ANONYMOUS": "anyone@example.org"}
    with RestFrontend(redis.url, **settings) as frontend:
        queue = httpx.post(f"{frontend.url}/queues", verify=NO_TLS).headers["Location"]
        assert (
            httpx.delete(frontend.url + queue, headers=basic(b"alice@example.org:wrong"), verify=NO_TLS).status_code
            == 401
        )
        with client(frontend) as alice:
            assert alice.delete(queue).status_code == 403
        assert httpx.delete(frontend.url + queue, verify=NO_TLS).status_code == 200

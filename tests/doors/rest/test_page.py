"""The web page as bytes, which sites may request changes from a browser, and the log of refusals."""

import json
import secrets

import httpx
import pytest

from frontends.rest import files
from frontends.rest.auth import csrf
from frontends.rest.errors import Fault
from frontends.tools.servers.redis import RedisServer
from tests.doors.rest.served import RestFrontend, client, problem
from tests.doors.tokens import PEM


def test_files(frontend: RestFrontend) -> None:
    """Everybody gets the page, with a policy for the browser, and gets it again only when it has changed."""
    with httpx.Client(base_url=frontend.url) as http:
        page = http.get("/ui", headers={"Accept": "text/html"})
        assert page.status_code == 200 and page.headers["Content-Type"] == "text/html; charset=utf-8"
        assert page.headers["X-Content-Type-Options"] == "nosniff"
        policy = page.headers["Content-Security-Policy"]
        assert "default-src 'self'" in policy and "frame-ancestors 'none'" in policy and "unsafe" not in policy
        etag = page.headers["ETag"]
        again = http.get("/ui", headers={"If-None-Match": f'"other", W/{etag}'})
        assert (again.status_code, again.content, again.headers["ETag"]) == (304, b"", etag)
        plain = http.head("/ui", headers={"Accept-Encoding": "identity"})
        assert plain.headers["Content-Length"] == str(len(page.content))
        for name in files._files():
            found = http.get(f"/ui/{name}")
            assert found.status_code == 200 and found.headers["Content-Security-Policy"] == policy
            # One page without anything from other sites or inline.
            text = found.text.replace("http://www.w3.org/2000/svg", "")
            assert not any(word in text for word in ("://", " style=", ' onclick="', "innerHTML", "eval("))
        slashed = http.get("/ui/")
        assert (slashed.status_code, slashed.headers["Location"]) == (308, "../ui")
        assert http.get("/ui/", follow_redirects=True).content == page.content
        for name in ("x", "..%2Fdoor.py", "%2e%2e", "index.html/", "door.py", "a/b"):
            assert http.get(f"/ui/{name}").status_code in {400, 404}, name
        assert http.post("/ui").status_code == 405


def test_sign_on(redis: RedisServer, frontend: RestFrontend) -> None:
    """Everybody learns where the page signs people in, and the page may ask there and nowhere else."""
    assert httpx.get(f"{frontend.url}/sign-on").json() == {}
    given = {"JWT_KEYS": PEM, "JWT_ISSUER": "https://login.example.org:8443/realm", "JWT_AUDIENCE": "stanzaq"}
    with RestFrontend(redis.url, **given, PAGE_CLIENT="page", PAGE_SCOPE="openid groups") as other:
        said = httpx.get(f"{other.url}/sign-on")
        assert said.json() == {"issuer": given["JWT_ISSUER"], "client": "page", "scope": "openid groups"}
        policy = httpx.get(f"{other.url}/ui").headers["Content-Security-Policy"].split("; ")
        assert "connect-src 'self' https://login.example.org:8443" in policy and "default-src 'self'" in policy


@pytest.mark.parametrize(
    ("headers", "ours"),
    [
        ({}, True),
        ({"sec-fetch-site": "same-origin", "origin": "https://proxied.example.org"}, True),
        ({"sec-fetch-site": "none"}, True),
        ({"sec-fetch-site": "same-site"}, False),
        ({"sec-fetch-site": "cross-site"}, False),
        ({"sec-fetch-site": ""}, False),
        ({"origin": "https://Queue.example.org", "host": "queue.example.org"}, True),
        ({"origin": "http://queue.example.org:8080", "host": "queue.example.org:8080"}, True),
        ({"origin": "http://queue.example.org:8081", "host": "queue.example.org:8080"}, False),
        ({"origin": "https://evil.example", "host": "queue.example.org"}, False),
        ({"origin": "null", "host": "queue.example.org"}, False),
        ({"origin": "http://[", "host": "queue.example.org"}, False),
        ({"origin": ""}, False),
    ],
)
def test_whose_page_asks(headers: dict[str, str], ours: bool) -> None:  # noqa: FBT001  (a column)
    """A change requested by another site's page in a user's browser is refused; reading is harmless."""
    csrf.judge("GET", headers)
    if ours:
        csrf.judge("POST", headers)
        return
    for method in ("POST", "PUT", "PATCH", "DELETE"):
        with pytest.raises(Fault) as refused:
            csrf.judge(method, headers)
        assert (refused.value.status, refused.value.code) == (403, "cross-site")


def test_other_sites(alice: httpx.Client, queue: str) -> None:
    """No change of any kind is made for other sites, however good the credentials that the browser adds."""
    evil = {"Sec-Fetch-Site": "cross-site", "Origin": "https://evil.example"}
    for method, path in (
        ("POST", queue), ("PUT", queue), ("PATCH", queue), ("DELETE", queue), ("POST", "/queues"),
        ("POST", queue.replace("queues", "redrives")), ("POST", queue.replace("queues", "releases")),
        ("POST", queue.replace("queues", "batches")),
    ):  # fmt: skip
        assert problem(alice.request(method, path, headers=evil, content=b"x")) == (403, "cross-site")
    assert alice.get(queue, headers=evil).status_code == 200
    assert alice.get(queue, headers={"Accept": "application/json"}).json()["messages"] == []


def test_refusals_are_logged(redis: RedisServer) -> None:
    """X2: one line for each, as at the other door, with the request's id; no payload and no password is in any."""
    secret, request = f"payload-{secrets.token_hex(4)}", f"id-{secrets.token_hex(4)}"
    headers = {"X-Request-Id": request}
    # A frontend of its own: refusals elsewhere would use up the log's limit per second.
    with RestFrontend(redis.url) as frontend, client(frontend) as http:
        queue = http.post("/queues").headers["Location"]
        name = queue.removeprefix("/queues/")
        assert http.post("/queues/nowhere?guid=g", content=secret.encode(), headers=headers).status_code == 404
        assert http.get(f"/messages/{name}/missing", headers=headers).status_code == 404
        http.post(f"/batches/{name}", json=[{"text": secret}, {"text": secret, "guid": "\u0007"}], headers=headers)
        http.post(f"/cancellations/{name}", json={"items": ["missing"]}, headers=headers)
        http.patch(queue, json={"options": {"stanzaq#state": "draining"}}).raise_for_status()
        assert http.post(queue, content=b"x", headers=headers).status_code == 503
        wrong = http.get(queue, headers=headers, auth=("alice@example.org", secret))
        assert wrong.status_code == 401
        lines = [json.loads(line) for line in frontend.log.splitlines() if request in line]
        assert secret not in frontend.log
    words = ("event", "level", "problem", "node", "item", "subscriber", "command")
    assert [tuple(line.get(word, "") for word in words) for line in lines] == [
        ("refused", "info", "node-not-found", "nowhere", "", "alice@example.org", "send_message"),
        ("refused", "info", "item-not-found", name, "missing", "alice@example.org", "show_message"),
        ("refused", "info", "item-id-invalid", name, "", "alice@example.org", "send_batch"),
        ("refused", "info", "item-not-found", name, "", "alice@example.org", "cancel"),
        ("refused", "info", "node-draining", name, "", "alice@example.org", "send_message"),
        ("refused", "info", "invalid-credentials", name, "", "", "show_queue"),
    ]
    assert all(line["detail"] for line in lines)

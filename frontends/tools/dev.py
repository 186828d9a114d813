"""`stanzaq dev`: a complete service on loopback to develop against. Must not know what its clients send.

Redis is the embedded one. Without ejabberd on this machine there is no XMPP, and the printed text says so.
"""

import json
import os
import shutil
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from http import HTTPStatus
from importlib.util import find_spec
from pathlib import Path
from queue import Empty, SimpleQueue
from shlex import quote
from socket import socket
from typing import Any, ClassVar, Final
from urllib.error import HTTPError
from urllib.request import HTTPBasicAuthHandler, HTTPPasswordMgrWithDefaultRealm, ProxyHandler, Request, build_opener

from rich.console import Console

from frontends.tools.demo.frontend import Frontend
from frontends.tools.servers.ejabberd import Ejabberd
from frontends.tools.servers.process import ServerError, free_port
from frontends.tools.servers.redis import RedisServer

PASSWORD: Final = "secret"  # noqa: S105  (of accounts on loopback, printed)
QUEUE: Final = "jobs"
_USERS: Final = ("admin", "publisher", "worker")
USUAL_PORTS: Final = (8080, 5672, 5222)
"""The ports of HTTP, AMQP and XMPP, where they are free."""

_OTHER_PORT: Final = 8081
"""The port of HTTP that is printed for another frontend."""

_LOOKED_SECONDS: Final = 1.0

_WORKER: Final = """\
STANZAQ_PASSWORD={password} {python} - <<'END'
from stanzaq import Job, Worker
worker = Worker({account})
@worker.task("{queue}")
async def work(job: Job) -> None:
    print("working on", job.payload, flush=True)
worker.run()
END"""


_SET_UP: Final = """\
For the commands of stanzaq, in another terminal:
export STANZAQ_REDIS_URL={redis}
{stanzaq} node create pictures dedupe=ignore --owner publisher@{accounts} --member worker@{accounts}

A queue admits nobody whom its owner has not admitted. This admits another account, which is added below:
{stanzaq} node grant pictures --member alice@{accounts}
"""

_REGISTER: Final = """\
Another account over XMPP:
{python} -Pc 'from frontends.tools.servers.conversation import register
print(register({port}, "{accounts}", "alice", "{password}") or "registered")'
"""

_ADD: Final = """\
Another account over HTTP, at another frontend:
STANZAQ_REDIS_URL={redis} STANZAQ_HTTP_BIND={bind} STANZAQ_HTTP_PASSWORDS=$({python} -c 'import bcrypt
print("alice@{accounts}:" + bcrypt.hashpw(b"{password}", bcrypt.gensalt()).decode())') {stanzaq} serve rest
"""

_NO_AMQP: Final = "AMQP        is missing: pip install 'stanzaq[amqp]', or `make install` in a clone, compiles it"


@dataclass(frozen=True, slots=True)
class Service:
    """A running service: where its doors are, and its accounts `admin`, `publisher` and `worker`.

    `xmpp` is `host:port` of the XMPP server, and `amqp` that of the AMQP door; both are empty if that cannot be had.
    """

    frontends: tuple[Frontend, ...]
    http: str
    amqp: str
    xmpp: str
    redis: Path
    no_xmpp: str
    """Why there is no XMPP."""

    password: ClassVar[str] = PASSWORD
    queue: ClassVar[str] = QUEUE
    domain: ClassVar[str] = Ejabberd.domain

    def jid(self, user: str) -> str:
        """Return the JID of an account, which is its name over HTTP and AMQP too."""
        return f"{user}@{Ejabberd.accounts}"

    def account(self, user: str) -> dict[str, Any]:
        """Return the arguments of a `stanzaq.Worker` or `stanzaq.Publisher`; raises ServerError without XMPP."""
        if not self.xmpp:
            raise ServerError(self.no_xmpp)
        url = f"xmpp://{self.jid(user)}"
        return {"url": url, "service": self.domain, "password": PASSWORD, "address": self.xmpp, "tls": "disabled"}


def main(data: Path | None) -> int:
    """Run the service until SIGINT or SIGTERM, with its data in a directory (None: a temporary one). Raises ServerError."""
    console, stop = Console(highlight=False, soft_wrap=True), SimpleQueue[None]()
    for name in (signal.SIGINT, signal.SIGTERM):
        # A handler runs between any two lines of this thread; unlike `threading.Event`, this queue has no lock that it may hold.
        signal.signal(name, lambda *_: stop.put(None))
    with ExitStack() as stack:
        with Console(stderr=True).status("starting Redis, ejabberd and a frontend of each door"):
            service = start(stack, data, [_port(usual) for usual in USUAL_PORTS])
        console.print("\n".join([*_lines(service), "", "Ctrl-C ends it."]), markup=False)
        while True:
            with suppress(Empty):
                stop.get(timeout=_LOOKED_SECONDS)
                return 0
            for frontend in service.frontends:
                frontend.must_live()


def start(stack: ExitStack, data: Path | None, ports: Sequence[int], redis_port: int | None = None) -> Service:
    """Start all servers, which end with the stack; `ports` are those of HTTP, AMQP and XMPP. Raises ServerError.

    With `redis_port` others reach its Redis over TCP, too.
    """
    if find_spec("starlette") is None:
        msg = "the RESTful door is not installed: pip install 'stanzaq[embedded,rest]'"
        raise ServerError(msg)
    http_port, amqp_port, xmpp_port = ports
    durable = {"appendonly": "yes"}
    redis = stack.enter_context(RedisServer(data and data / "redis", port=redis_port, options=durable))
    redis_url = f"unix://{redis.socket}"
    settings = {"REDIS_URL": redis_url, "ADMINS": f"admin@{Ejabberd.accounts}"}
    http, amqp, passwords = f"127.0.0.1:{http_port}", "", _passwords()
    frontends = [stack.enter_context(Frontend({**settings, "HTTP_BIND": http, "HTTP_PASSWORDS": passwords}, "rest"))]
    _make_queue(f"http://{http}")
    if find_spec("proton") is not None:
        amqp = f"127.0.0.1:{amqp_port}"
        bound = {**settings, "AMQP_BIND": amqp, "AMQP_PASSWORDS": passwords}
        frontends.append(stack.enter_context(Frontend(bound, "amqp")))
    xmpp = no_xmpp = ""
    try:
        ejabberd = stack.enter_context(Ejabberd(data and data / "ejabberd", c2s_port=xmpp_port))
    except ServerError as fault:
        no_xmpp = f"There is no XMPP: {fault}"
    else:
        for user in _USERS:
            ejabberd.register(user, PASSWORD, known=True)
        frontends.append(stack.enter_context(Frontend({**settings, **ejabberd.settings(redis_url)})))
        xmpp = f"{ejabberd.host}:{ejabberd.c2s_port}"
    return Service(tuple(frontends), f"http://{http}", amqp, xmpp, redis.socket, no_xmpp)


def _lines(service: Service) -> list[str]:
    """Say where the service is, and give commands to paste."""
    url = service.http
    publisher, worker = (f"curl -u {service.jid(user)}:{PASSWORD}" for user in ("publisher", "worker"))
    body = """-H 'Content-Type: application/json' -d '{"file": "cat.png"}'"""
    told = [
        f"The page    {url}/ui   user {service.jid('admin')}, password {PASSWORD}",
        f"Redis       redis-cli -s {quote(str(service.redis))}",
        f"AMQP        amqp://{service.amqp}   users as over HTTP" if service.amqp else _NO_AMQP,
        "",
        *_set_up(service),
        "Publish:",
        f"{publisher} {body} {url}/queues/{QUEUE}",
        "",
        "Work over HTTP; the answer says where to come for messages:",
        f"{worker} -d destinations={QUEUE} -d prefetch=1 {url}/subscriptions",
        "",
    ]
    if not service.xmpp:
        account = url.replace("//", f"//{service.jid('worker')}@")
        return [
            *told,
            "Work over HTTP in Python (pip install 'stanzaq[http]'):",
            _worker(f'"{account}"'),
            "",
            service.no_xmpp,
        ]
    account, place = f"xmpp://{service.jid('worker')}", f'service="{service.domain}", address="{service.xmpp}"'
    return [*told, f"Work over XMPP, at {service.xmpp}:", _worker(f'"{account}", {place}, tls="disabled"')]


def _set_up(service: Service) -> list[str]:
    """Say how to use the command line, and how to add accounts."""
    # The command that belongs to this Python, whichever the other terminal has.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    told = {
        "stanzaq": quote(shutil.which("stanzaq", path=path) or "stanzaq"),
        "python": quote(sys.executable),
        "redis": quote(f"unix://{service.redis}"),
        "accounts": Ejabberd.accounts,
        "password": PASSWORD,
    }
    lines = [_SET_UP.format_map(told)]
    if service.xmpp:
        lines.append(_REGISTER.format_map({**told, "port": service.xmpp.rpartition(":")[2]}))
    return [*lines, _ADD.format_map({**told, "bind": f"127.0.0.1:{_port(_OTHER_PORT)}"})]


def _worker(account: str) -> str:
    """Return a program with a worker."""
    # The Python that has the library, whichever the other terminal has.
    return _WORKER.format(password=PASSWORD, python=quote(sys.executable), account=account, queue=QUEUE)


def _passwords() -> str:
    """Return the accounts as the content of a password file."""
    import bcrypt  # noqa: PLC0415  (an extra)

    # The cheapest hash, because the password is printed anyway.
    hashed = bcrypt.hashpw(PASSWORD.encode(), bcrypt.gensalt(4)).decode()
    return "\n".join(f"{user}@{Ejabberd.accounts}:{hashed}" for user in _USERS)


def _port(usual: int) -> int:
    """Return the usual port if it is free, otherwise any free one."""
    with socket() as probe:
        try:
            probe.bind(("127.0.0.1", usual))
        except OSError:
            return free_port()
    return usual


def _make_queue(url: str) -> None:
    """Create the queue of the printed commands and admit its worker; the options of an existing one are not changed."""
    passwords = HTTPPasswordMgrWithDefaultRealm()
    passwords.add_password(None, url, f"publisher@{Ejabberd.accounts}", PASSWORD)
    opener = build_opener(ProxyHandler({}), HTTPBasicAuthHandler(passwords))

    def change(method: str, path: str, body: Mapping[str, object], **head: str) -> None:
        head = {"Content-Type": "application/json", **head}
        request = Request(f"{url}{path}", json.dumps(body).encode(), head, method=method)  # noqa: S310  (our own server)
        opener.open(request, timeout=30).close()

    try:
        change("PUT", f"/queues/{QUEUE}", {"options": {"stanzaq#dedupe": "ignore"}}, **{"If-None-Match": "*"})
    except HTTPError as fault:
        if fault.code != HTTPStatus.PRECONDITION_FAILED:
            raise
    change("PATCH", f"/affiliations/{QUEUE}", {"affiliations": {f"worker@{Ejabberd.accounts}": "member"}})

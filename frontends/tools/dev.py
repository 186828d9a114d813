"""`stanzaq dev`: a complete service on loopback to develop against. Must not know what its clients send.

Redis is the embedded one. Without ejabberd on this machine there is no XMPP, and the printed text says so.
"""

import json
import signal
import threading
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from socket import socket
from typing import Final
from urllib.request import HTTPBasicAuthHandler, HTTPPasswordMgrWithDefaultRealm, Request, build_opener

from rich.console import Console

from frontends.tools.demo.frontend import Frontend
from frontends.tools.servers.ejabberd import Ejabberd
from frontends.tools.servers.process import ServerError, free_port
from frontends.tools.servers.redis import RedisServer

PASSWORD: Final = "secret"  # noqa: S105  (of accounts on loopback, printed)
QUEUE: Final = "jobs"
_USERS: Final = ("admin", "publisher", "worker")
_HTTP_PORT: Final = 8080
_AMQP_PORT: Final = 5672
_LOOKED_SECONDS: Final = 1.0

_WORKER: Final = """\
STANZAQ_PASSWORD={password} python - <<'END'
from stanzaq import Job, Worker
worker = Worker("xmpp://worker@{accounts}", service="{service}", address="{address}", tls="disabled")
@worker.task("{queue}")
async def work(job: Job) -> None:
    print("working on", job.payload, flush=True)
worker.run()
END"""


def main(data: Path | None) -> int:
    """Run the service until SIGINT or SIGTERM, with its data in a directory (None: a temporary one). Raises ServerError."""
    if find_spec("starlette") is None:
        msg = "the RESTful door is not installed: pip install 'stanzaq[embedded,rest]'"
        raise ServerError(msg)
    console, stop = Console(highlight=False, soft_wrap=True), threading.Event()
    for name in (signal.SIGINT, signal.SIGTERM):
        signal.signal(name, lambda *_: stop.set())
    with ExitStack() as stack:
        with Console(stderr=True).status("starting Redis, ejabberd and a frontend of each door"):
            frontends, lines = _started(stack, data)
        console.print("\n".join([*lines, "", "Ctrl-C ends it."]), markup=False)
        while not stop.wait(_LOOKED_SECONDS):
            for frontend in frontends:
                frontend.must_live()
    return 0


def _started(stack: ExitStack, data: Path | None) -> tuple[list[Frontend], list[str]]:
    """Start all servers; returns the frontends and the lines to print."""
    redis = stack.enter_context(RedisServer(data and data / "redis", options={"appendonly": "yes"}))
    settings = {"REDIS_URL": redis.url, "ADMINS": f"admin@{Ejabberd.accounts}"}
    http, passwords = f"127.0.0.1:{_port(_HTTP_PORT)}", _passwords()
    frontends = [stack.enter_context(Frontend({**settings, "HTTP_BIND": http, "HTTP_PASSWORDS": passwords}, "rest"))]
    url = f"http://{http}"
    _make_queue(url)
    told = [
        f"The page    {url}/ui   user admin@{Ejabberd.accounts}, password {PASSWORD}",
        f"Redis       redis-cli -s {redis.socket}",
    ]
    if find_spec("proton") is not None:
        amqp = f"127.0.0.1:{_port(_AMQP_PORT)}"
        bound = {**settings, "AMQP_BIND": amqp, "AMQP_PASSWORDS": passwords}
        frontends.append(stack.enter_context(Frontend(bound, "amqp")))
        told.append(f"AMQP        amqp://{amqp}   users as over HTTP")
    publisher, worker = (f"curl -u {user}@{Ejabberd.accounts}:{PASSWORD}" for user in ("publisher", "worker"))
    body = """-H 'Content-Type: application/json' -d '{"file": "cat.png"}'"""
    told += [
        "",
        "Publish:",
        f"{publisher} {body} {url}/queues/{QUEUE}",
        "",
        "Work over HTTP; the answer says where to come for messages:",
        f"{worker} -d destinations={QUEUE} -d prefetch=1 {url}/subscriptions",
        "",
    ]
    try:
        ejabberd = stack.enter_context(Ejabberd(data and data / "ejabberd"))
    except ServerError as fault:
        return frontends, [*told, f"There is no XMPP: {fault}"]
    for user in _USERS:
        ejabberd.register(user, PASSWORD, known=True)
    frontends.append(stack.enter_context(Frontend({**settings, **ejabberd.settings(redis.url)})))
    address = f"{ejabberd.host}:{ejabberd.c2s_port}"
    program = _WORKER.format(
        password=PASSWORD, accounts=ejabberd.accounts, service=ejabberd.domain, address=address, queue=QUEUE
    )
    return frontends, [*told, f"Work over XMPP, at {address}:", program]


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
    """Create the queue of the printed commands; an existing one is not changed."""
    passwords = HTTPPasswordMgrWithDefaultRealm()
    passwords.add_password(None, url, f"publisher@{Ejabberd.accounts}", PASSWORD)
    options = {"pubsub#publish_model": "open", "stanzaq#dedupe": "ignore"}
    body = json.dumps({"options": options}).encode()
    place, kind = f"{url}/queues/{QUEUE}", {"Content-Type": "application/json"}
    request = Request(place, body, kind, method="PUT")  # noqa: S310  (our own server)
    build_opener(HTTPBasicAuthHandler(passwords)).open(request, timeout=30).close()

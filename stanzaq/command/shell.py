"""The commands `stanzaq worker` and `stanzaq publish`, which need only the library. Must not know the service's own commands."""

import argparse
import asyncio
import importlib
import logging
import mimetypes
import os
import shlex
import sys
from collections.abc import Sequence
from datetime import datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote
from xml.etree import ElementTree as ET

from stanzaq.command.several import MISUSE, Several
from stanzaq.durations import Duration, seconds
from stanzaq.errors import StanzaqError
from stanzaq.logs import show
from stanzaq.payloads import JSON, XML, check_json
from stanzaq.publisher.publisher import Publisher, Reply
from stanzaq.transport.interface import TASK, Content
from stanzaq.worker.worker import Worker, held

URL: Final = "STANZAQ_URL"

_AT_ONCE: Final = 50
_STDIN: Final = "-"


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command; exits with one line that says what to do if that is impossible."""
    parser = _parser()
    asked = parser.parse_args(arguments)
    if not asked.command:
        parser.print_help()
        return
    try:
        asked.run(asked)
    except StanzaqError as error:
        sys.exit(f"stanzaq: {error}")
    except _MisuseError as error:
        parser.exit(MISUSE, f"stanzaq: {error}\n")
    except KeyboardInterrupt:
        sys.exit(130)


class _MisuseError(Exception):
    """The command cannot be run as it was given; the message says what to do."""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "stanzaq",
        description="Workers and publishers for a stanzaq queue.",
        epilog="The service's own commands need the service: pip install 'stanzaq[server]'",
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    _add_worker(commands)
    _add_publish(commands)
    return parser


def _add_worker(commands: Any) -> None:  # noqa: ANN401  (argparse's own)
    worker = commands.add_parser(
        "worker",
        help="run a worker of a Python module",
        description="Run a worker of a Python module in the current directory until SIGTERM or Ctrl-C.",
        epilog="Example: stanzaq worker tasks:worker --concurrency 20",
    )
    worker.add_argument("worker", metavar="MODULE:NAME", help="the module and the name of its stanzaq.Worker")
    worker.add_argument("--concurrency", type=int, help="jobs at once, instead of the worker's own number")
    told = "run so many processes of the worker, each with this concurrency; one that dies is started again"
    worker.add_argument("--processes", type=int, help=told)
    worker.add_argument("--reload", action="store_true", help="start again whenever a Python file below here changes")
    worker.set_defaults(run=_work)


def _add_publish(commands: Any) -> None:  # noqa: ANN401
    publish = commands.add_parser(
        "publish",
        help="publish an item and print its id",
        description="Publish an item and print its id once the service has stored it. The password is in STANZAQ_PASSWORD.",
        epilog="""Example: stanzaq publish orders --json '{"total": 12}' --delay 10m --url xmpp://publisher@example.org""",
    )
    publish.add_argument("node", metavar="NODE", help="the node")
    payload = publish.add_mutually_exclusive_group(required=True)
    payload.add_argument("--json", metavar="TEXT", help="the payload, as JSON")
    payload.add_argument("--file", metavar="FILE", help="a file with the payload; its type follows from the name")
    told = "read the payload from standard input, as text or bytes"
    payload.add_argument("stdin", nargs="?", choices=[_STDIN], metavar=_STDIN, help=told)
    publish.add_argument("--task", help="the name of the task, where several share the node")
    publish.add_argument("--key", default="", help="the group key")
    publish.add_argument("--delay", type=_time, default="0s", help="hand it out after this time, e.g. 10m; or seconds")
    publish.add_argument("--at", help="hand it out at this time, e.g. 2026-12-01T09:00:00+01:00")
    publish.add_argument("--priority", type=int, help="0 to 9; default: 4")
    publish.add_argument("--ttl", type=_time, help="hand it out no later than this, e.g. 1h; or seconds")
    told = "wait until this item is acknowledged, an id or NODE#ID with %%20, %%23 and %%25 for blanks, # and %%; repeatable"
    publish.add_argument("--after", action="append", type=_parent, default=[], metavar="ITEM", help=told)
    publish.add_argument("--regardless", action="store_true", help="wait for those items however they end")
    publish.add_argument(
        "--confirm", default="", help="wait until it is synced or replicated; default: as the node says"
    )
    publish.add_argument(
        "--keep", action="store_true", help="keep its end for items that will wait for it with --after"
    )
    publish.add_argument(
        "--reply", action="store_true", help="wait until it has ended, and print its result, not its id"
    )
    publish.add_argument("--count", type=int, default=1, help="publish this many items, each with the same payload")
    publish.add_argument("--url", default=os.environ.get(URL), help=f"the account; default: {URL}")
    publish.add_argument("--service", help="the queue's domain, over XMPP; default: queue. and the account's domain")
    publish.add_argument("--address", help="host:port of the XMPP server; default: from DNS")
    publish.add_argument(
        "--tls", choices=["required", "disabled"], default="required", help="disabled: on loopback only"
    )
    publish.set_defaults(run=_publish)


def _time(text: str) -> Duration:
    """Read seconds, or leave a text with a unit for the publisher to read."""
    try:
        return float(text)
    except ValueError:
        return text


def _parent(text: str) -> tuple[str, str]:
    """Read an item to wait for, with its node."""
    node, _, item = text.rpartition("#")
    return unquote(node), unquote(item)


def _work(options: argparse.Namespace) -> None:
    if options.concurrency is not None and options.concurrency < 1:
        msg = f"--concurrency {options.concurrency}: at least one job runs at once"
        raise _MisuseError(msg)
    if options.processes is not None and options.processes < 1:
        msg = f"--processes {options.processes}: at least one runs"
        raise _MisuseError(msg)
    if options.reload:
        _reload(options)
    elif options.processes is not None:
        _run_several(options)
    else:
        _import_worker(options.worker).run(concurrency=options.concurrency)


def _run_several(options: argparse.Namespace) -> None:
    """Run the worker in several processes, each as this command without `--processes`."""
    show(logging.INFO)
    _split(options.worker)
    several = Several(main, _arguments(options))
    asyncio.run(several.run(options.processes))
    sys.exit(several.code)


def _arguments(options: argparse.Namespace) -> list[str]:
    """Return the arguments of one process of a worker."""
    concurrency = [] if options.concurrency is None else ["--concurrency", str(options.concurrency)]
    return ["worker", options.worker, *concurrency]


def _split(spec: str) -> tuple[str, str]:
    """Return a module and a name in it; raises _MisuseError."""
    module, colon, name = spec.partition(":")
    if not (module and colon and name):
        msg = f"{spec!r}: write MODULE:NAME, e.g. tasks:worker"
        raise _MisuseError(msg)
    return module, name


def _import_worker(spec: str) -> Worker:
    """Import a worker; what its module raises has a traceback. Raises _MisuseError if there is none."""
    module, name = _split(spec)
    sys.path.insert(0, str(Path.cwd()))
    try:
        # Its last line may be `worker.run()`.
        with held():
            found = importlib.import_module(module)
    except ModuleNotFoundError as fault:
        if not f"{module}.".startswith(f"{fault.name}."):
            raise
        msg = f"there is no module {module} here: run this in the directory that has it"
        raise _MisuseError(msg) from None
    worker = getattr(found, name, None)
    if not isinstance(worker, Worker):
        workers = [each for each, value in vars(found).items() if isinstance(value, Worker)]
        msg = f"{module} has no stanzaq.Worker called {name}; it has {', '.join(workers) or 'none'}"
        raise _MisuseError(msg)
    return worker


def _reload(options: argparse.Namespace) -> None:
    """Run the worker in another process, and a new one after each change."""
    if find_spec("watchfiles") is None:
        msg = "--reload needs watchfiles: pip install 'stanzaq[reload]'"
        raise _MisuseError(msg)
    from watchfiles import PythonFilter, run_process  # noqa: PLC0415

    command = [sys.executable, "-m", "stanzaq", *_arguments(options)]
    if options.processes is not None:
        command += ["--processes", str(options.processes)]
    run_process(".", target=shlex.join(command), target_type="command", watch_filter=PythonFilter())


def _publish(options: argparse.Namespace) -> None:
    if not options.url:
        msg = f"whose account? Set {URL}, or give --url, e.g. xmpp://publisher@example.org"
        raise _MisuseError(msg)
    if options.count < 1:
        msg = f"--count {options.count}: publish at least one"
        raise _MisuseError(msg)
    show(logging.WARNING)
    try:
        payload = _payload(options)
        hints = {
            "key": options.key,
            "delay": seconds(options.delay),
            "priority": options.priority,
            "ttl": options.ttl,
            "at": None if options.at is None else _moment(options.at),
            "after": options.after,
            "regardless": options.regardless,
            "keep": options.keep,
            "reply": options.reply,
            "headers": None if options.task is None else {TASK: options.task},
            "confirm": options.confirm,
        }
        publisher = Publisher(options.url, service=options.service, address=options.address, tls=options.tls)
        asyncio.run(_send(publisher, options.node, payload, options.count, hints))
    except (ValueError, TypeError) as fault:
        raise _MisuseError(str(fault)) from fault


async def _send(publisher: Publisher, node: str, payload: Any, count: int, hints: dict[str, Any]) -> None:  # noqa: ANN401
    async with publisher:
        for begin in range(0, count, _AT_ONCE):
            some = range(begin, min(begin + _AT_ONCE, count))
            answers: list[Any] = await asyncio.gather(*(publisher.publish(node, payload, **hints) for _ in some))
            for answer in answers:
                await _show(answer)


async def _show(answer: str | Reply) -> None:
    """Print an id, or the result that an item ends with. Raises StanzaqError if it is not completed."""
    text: str | None = answer if isinstance(answer, str) else None
    if isinstance(answer, Reply) and (content := await answer.content()):
        try:
            text = content.body.decode()
        except UnicodeDecodeError:
            sys.stdout.buffer.write(content.body)
    if text is not None:
        print(text, flush=True)  # noqa: T201


def _moment(text: str) -> datetime:
    """Read a time with its offset; raises ValueError."""
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        msg = f"--at {text}: no time: write e.g. 2026-12-01T09:00:00+01:00"
        raise ValueError(msg) from None


def _payload(options: argparse.Namespace) -> Any:  # noqa: ANN401
    """Read the payload; raises ValueError if it is not what it is called."""
    if options.json is not None:
        return _json(options.json.encode(), "--json")
    if options.stdin or options.file == _STDIN:
        body = sys.stdin.buffer.read()
        try:
            return body.decode()
        except UnicodeDecodeError:
            return body
    try:
        body = Path(options.file).read_bytes()
    except OSError as fault:
        raise _MisuseError(str(fault)) from fault
    kind, _encoding = mimetypes.guess_type(options.file)
    if kind == JSON:
        return _json(body, options.file)
    if kind in {XML, "text/xml"}:
        try:
            return ET.fromstring(body)  # noqa: S314  (the user's own file)
        except ET.ParseError as fault:
            msg = f"{options.file} is not XML: {fault}"
            raise ValueError(msg) from None
    return Content(body, kind) if kind else body


def _json(body: bytes, where: str) -> Content:
    try:
        check_json(body)
    except ValueError as fault:
        msg = f"{where} is not JSON: {fault}"
        raise ValueError(msg) from None
    return Content(body, JSON)

"""How log records look and where they go: one line each on stderr, none with a secret. Must not know who writes them.

A traceback tells types, places and texts, and no value of a variable: among those are payloads and passwords.
"""

import json
import logging
import sys
import time
import traceback
from collections.abc import Collection, Mapping, MutableMapping
from typing import Any, Final, TextIO

import structlog
from structlog.types import ExcInfo, Processor

_LINES_MOST: Final = 20
_LINES_OF_ONE: Final = 5
"""Lines of one event in a second, and of those for one subscriber: who is refused in a flood is not to flood the log."""
_KNOWN_MOST: Final = 1_000

_QUOTING: Final = (ValueError, LookupError, SyntaxError)
"""What says in its text what it could not read: that may be a payload."""
_CAUSES_MOST: Final = 5
_SECRET_LEAST: Final = 4
"""What is shorter stands in every other word, and hides nothing."""

_BEFORE: list[Processor] = [
    structlog.contextvars.merge_contextvars,
    structlog.stdlib.add_logger_name,
    structlog.stdlib.add_log_level,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
]


class Flood:
    """Drops lines of an event that come too often; the next of them that is not dropped says how many were."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self._ends = 0.0
        self._counts: dict[tuple[str, object], int] = {}
        self._dropped: dict[str, int] = {}

    def __call__(self, _logger: object, _method: str, line: MutableMapping[str, Any]) -> Mapping[str, Any]:
        """Pass a line on or drop it."""
        now = time.monotonic()
        if now >= self._ends:
            self._ends = now + 1.0
            self._counts.clear()
        event, subscriber = str(line.get("event")), line.get("subscriber", "")
        if not (self._room((event, None), _LINES_MOST) and self._room((event, subscriber), _LINES_OF_ONE)):
            if len(self._dropped) < _KNOWN_MOST or event in self._dropped:
                self._dropped[event] = self._dropped.get(event, 0) + 1
            raise structlog.DropEvent
        for name in ((event, None), (event, subscriber)):
            self._counts[name] = self._counts.get(name, 0) + 1
        if event in self._dropped:
            line["suppressed"] = self._dropped.pop(event)
        return line

    def _room(self, name: tuple[str, object], most: int) -> bool:
        # What names nobody is bounded by its event alone.
        return name[1] == "" or self._counts.get(name, 0) < most


class _Without(structlog.stdlib.ProcessorFormatter):
    """Writes lines without certain words."""

    def __init__(self, secrets: Collection[str], processors: list[Processor]) -> None:
        """Take these out of whatever is written."""
        super().__init__(foreign_pre_chain=_BEFORE, processors=processors)
        told = [secret for secret in secrets if len(secret) >= _SECRET_LEAST]
        # In JSON some characters are written otherwise.
        self._secrets = {*told, *(json.dumps(secret)[1:-1] for secret in told)}

    def format(self, record: logging.LogRecord) -> str:
        """Write a line."""
        text = super().format(record)
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return text


def set_up(*, as_json: bool, secrets: Collection[str] = ()) -> None:
    """Send structlog's records and the standard library's the same way: as JSON for programs, else for people.

    None of the `secrets` is ever written, wherever it stands.
    """
    rendering: list[Processor] = (
        [structlog.processors.ExceptionRenderer(_told), structlog.processors.JSONRenderer()]
        if as_json
        else [structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), exception_formatter=_written)]
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Without(secrets, [structlog.stdlib.ProcessorFormatter.remove_processors_meta, *rendering]))
    logging.basicConfig(handlers=[handler], level=logging.INFO, force=True)
    # slixmpp tells each reconnect and each stanza that it does not know; the frontend tells what matters of it.
    logging.getLogger("slixmpp").setLevel(logging.WARNING)
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            Flood(),
            *_BEFORE,
            structlog.stdlib.PositionalArgumentsFormatter(),
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )


def _told(exc_info: ExcInfo) -> list[dict[str, Any]]:
    """Tell an exception and what it came of: types, texts that quote nothing, and places."""
    told: list[dict[str, Any]] = []
    error: BaseException | None = exc_info[1]
    while error is not None and len(told) < _CAUSES_MOST:
        told.append(
            {
                "exc_type": type(error).__name__,
                "exc_value": "" if isinstance(error, _QUOTING) else str(error)[:500],
                "frames": [
                    {"filename": frame.filename, "lineno": frame.lineno, "name": frame.name}
                    for frame in traceback.extract_tb(error.__traceback__)
                ],
            }
        )
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return told


def _written(file: TextIO, exc_info: ExcInfo) -> None:
    """Write the same for people."""
    for number, each in enumerate(_told(exc_info)):
        file.write("\n" if not number else "\nwhich came of:\n")
        file.writelines(f"  {frame['filename']}:{frame['lineno']} in {frame['name']}\n" for frame in each["frames"])
        file.write(": ".join(filter(None, (each["exc_type"], each["exc_value"]))))

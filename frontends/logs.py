"""Formats log records: one line each on stderr, without secrets. Must not know who writes them.

A traceback has types, places and texts, but no values of variables, which include payloads and passwords.
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
"""The most lines of one event a second, and of those for one subscriber: a flood of refusals must not flood the log."""
_KNOWN_MOST: Final = 1_000

_QUOTING: Final = (ValueError, LookupError, SyntaxError)
"""Exceptions whose text quotes their input, which may be a payload."""
_CAUSES_MOST: Final = 5
_SECRET_LEAST: Final = 4
"""Shorter secrets occur in ordinary words: hiding them would hide nothing."""

_BEFORE: list[Processor] = [
    structlog.contextvars.merge_contextvars,
    structlog.stdlib.add_logger_name,
    structlog.stdlib.add_log_level,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
]


class Flood:
    """Drops lines of an event that come too often; the next line that passes says how many were dropped."""

    def __init__(self) -> None:
        """Start with nothing."""
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
        # A line without a subscriber is limited by its event alone.
        return name[1] == "" or self._counts.get(name, 0) < most


_hidden: Final[set[str]] = set()


def hide(secrets: Collection[str]) -> None:
    """Replace these words too in all output."""
    told = [secret for secret in secrets if len(secret) >= _SECRET_LEAST]
    # JSON escapes some characters.
    _hidden.update(told, (json.dumps(secret)[1:-1] for secret in told))


class _Without(structlog.stdlib.ProcessorFormatter):
    """Formats lines without hidden words."""

    def format(self, record: logging.LogRecord) -> str:
        """Format a line."""
        text = super().format(record)
        for secret in _hidden:
            text = text.replace(secret, "***")
        return text


def set_up(*, as_json: bool, secrets: Collection[str] = ()) -> None:
    """Format records of structlog and the standard library alike: as JSON for programs, else for people.

    No output contains any of the `secrets`.
    """
    rendering: list[Processor] = (
        [structlog.processors.ExceptionRenderer(_describe_fault), structlog.processors.JSONRenderer()]
        if as_json
        else [structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), exception_formatter=_write_for_people)]
    )
    handler = logging.StreamHandler(sys.stderr)
    _hidden.clear()
    hide(secrets)
    shown = [structlog.stdlib.ProcessorFormatter.remove_processors_meta, *rendering]
    handler.setFormatter(_Without(foreign_pre_chain=_BEFORE, processors=shown))
    logging.basicConfig(handlers=[handler], level=logging.INFO, force=True)
    # slixmpp logs every reconnect and unknown stanza; the frontend logs what matters itself.
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


def _describe_fault(exc_info: ExcInfo) -> list[dict[str, Any]]:
    """Describe an exception and its causes: types, texts without quotations, and places."""
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


def _write_for_people(file: TextIO, exc_info: ExcInfo) -> None:
    """Write the same for people."""
    for number, each in enumerate(_describe_fault(exc_info)):
        file.write("\n" if not number else "\ncaused by:\n")
        file.writelines(f"  {frame['filename']}:{frame['lineno']} in {frame['name']}\n" for frame in each["frames"])
        file.write(": ".join(filter(None, (each["exc_type"], each["exc_value"]))))

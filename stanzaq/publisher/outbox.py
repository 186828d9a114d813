"""Items that a publisher has still to send, in a SQLite file: they survive its restarts. Must not know how they are sent."""

import asyncio
import ctypes
import os
import secrets
import sqlite3
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from stanzaq.errors import StanzaqError
from stanzaq.transport.interface import Outgoing

T = TypeVar("T")

_FORMAT: Final = 1

_SAVE: Final = "INSERT INTO items VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET record = excluded.record"

_REMEDIES: Final = {
    "SQLITE_BUSY": "another process uses it: give each process a file of its own",
    "SQLITE_FULL": "make room on its disk",
    "SQLITE_CANTOPEN": "its directory must exist and be writable",
    "SQLITE_READONLY": "make it writable",
    "SQLITE_NOTADB": "it is no outbox: move it away, or choose another file",
    "SQLITE_CORRUPT": "it is damaged: move it away, and look in it for items that were not sent",
}


class Outbox:
    """A file with the items of one publisher. Its calls run in a thread of their own: each waits for the disk."""

    def __init__(self, path: Path) -> None:
        """Use a file, which `open` creates if need be."""
        self._path = path
        self._thread = ThreadPoolExecutor(1, "stanzaq-outbox")
        self._db: sqlite3.Connection | None = None
        self.resource = ""
        """The resource to connect with: the service knows an item that it holds by the full JID of its sender."""

    async def open(self) -> list[Outgoing]:
        """Return the items of earlier runs, in order. Raises StanzaqError."""
        return await self._run("opened", self._open)

    async def save(self, outgoing: Outgoing) -> None:
        """Keep an item, or its new step; it is on disk on return. Raises StanzaqError."""
        record = msgspec.msgpack.encode(outgoing)
        await self._run("written", lambda: self._do(_SAVE, outgoing.name, record))

    async def remove(self, outgoing: Outgoing) -> None:
        """Remove an item. Raises StanzaqError."""
        await self._run("written", lambda: self._do("DELETE FROM items WHERE name = ?", outgoing.name))

    async def close(self) -> None:
        """Close the file."""
        await asyncio.get_running_loop().run_in_executor(self._thread, self._close)
        self._thread.shutdown(wait=False)

    def _open(self) -> list[Outgoing]:
        _outboxes.add(self)
        self._db = sqlite3.connect(self._path, timeout=1.0, isolation_level=None, check_same_thread=False)
        # On disk with each statement, and nobody else's meanwhile.
        for pragma in ("locking_mode = EXCLUSIVE", "journal_mode = WAL", "synchronous = FULL"):
            self._do(f"PRAGMA {pragma}")
        ((version,),) = self._do("PRAGMA user_version")
        if version not in {0, _FORMAT}:
            msg = f"the outbox {self._path} is of a newer version: use that one, or choose another file"
            raise StanzaqError(msg)
        self._do(f"PRAGMA user_version = {_FORMAT}")
        self._do("CREATE TABLE IF NOT EXISTS items (name TEXT PRIMARY KEY, record BLOB NOT NULL)")
        self._do("CREATE TABLE IF NOT EXISTS publisher (resource TEXT NOT NULL)")
        if not self._do("SELECT * FROM publisher"):
            self._do("INSERT INTO publisher VALUES (?)", f"stanzaq-{secrets.token_hex(8)}")
        ((self.resource,),) = self._do("SELECT resource FROM publisher")
        rows = self._do("SELECT record FROM items ORDER BY rowid")
        return [msgspec.msgpack.decode(record, type=Outgoing) for (record,) in rows]

    def _do(self, statement: str, *values: object) -> list[Any]:
        assert self._db is not None
        return self._db.execute(statement, values).fetchall()

    def _close(self) -> None:
        if self._db is not None:
            self._db.close()
            self._db = None

    def leave_open(self) -> None:
        """Never close the file in this process, a fork of the one that uses it: closing would delete items of its log."""
        if self._db is not None:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._db))

    async def _run(self, what: str, work: Callable[[], T]) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, work)
        except sqlite3.Error as error:
            # Errors of Python's module itself have no name.
            name = getattr(error, "sqlite_errorname", "")
            raise self._unusable(what, error, _REMEDIES.get(name, "check the file and its disk")) from error
        except msgspec.MsgspecError as error:
            raise self._unusable(what, error, _REMEDIES["SQLITE_CORRUPT"]) from error

    def _unusable(self, what: str, fault: Exception, remedy: str) -> StanzaqError:
        return StanzaqError(f"the outbox {self._path} cannot be {what} ({fault}): {remedy}")


_outboxes: weakref.WeakSet[Outbox] = weakref.WeakSet()


def _leave_open_after_fork() -> None:
    for each in _outboxes:
        each.leave_open()


os.register_at_fork(after_in_child=_leave_open_after_fork)

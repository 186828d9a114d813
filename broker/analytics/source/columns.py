"""Decodes stream entries into Arrow columns, many at a time. Knows the fields of an entry; must not know how it was read.

Row by row in Python, this would cost several times as much as Redis and Spark together.
"""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from broker.analytics.faults import Unreadable
from broker.journal.schema import FIELDS, LOGGED, NAMED, STORED, VERSION, AttemptEnd, JournalPartition, record

Entry = tuple[bytes, Sequence[bytes]]
"""An id, and names and values in turn, as Redis gives them."""

_TIME: Final = pa.timestamp("us", "UTC")
_PLACE: Final = [
    ("node", pa.string()),
    ("incarnation", pa.string()),
    ("partition", pa.int32()),
    ("offset", pa.string()),
]


def _type(name: str, unit: str, kind: str) -> pa.DataType:
    if kind == "text":
        return pa.string()
    if unit == "ms since 1970":
        return _TIME
    return pa.int32() if name == "attempt" else pa.int64()


ATTEMPTS: Final = pa.schema(
    [
        *_PLACE,
        *((field.name, _type(field.name, field.unit, field.type)) for field in FIELDS),
        *((name, pa.string()) for name in NAMED),
        ("position", pa.string()),
        ("wait_ms", pa.int64()),
        ("held_ms", pa.int64()),
    ]
)
"""A closed delivery attempt: its record, the position of its item, and how long the item waited and was held."""

LOG: Final = pa.schema(
    [
        *_PLACE,
        ("published", _TIME),
        ("item", pa.string()),
        ("key", pa.string()),
        ("publisher", pa.string()),
        ("at", pa.string()),
        ("body", pa.binary()),
    ]
)
"""An entry of the log: a payload that waits, is in flight, or is kept."""

_STORED: Final = tuple(name.encode() for name in STORED)
_TYPE: Final = _STORED[0]
_VERSION: Final = VERSION.encode()
_KINDS: Final = frozenset(kind.value.encode() for kind in AttemptEnd)
_LOGGED: Final = tuple(name.encode() for name in LOGGED)
_LATEST_MS: Final = 253_402_300_800_000
"""The year 10,000, where Python's calendar ends."""
_WORDS: Final = 10
"""The number of words in the line of a lock. The last is a JID and an item's id."""


def attempts(partition: JournalPartition, entries: Sequence[Entry]) -> pa.RecordBatch:
    """Decode records of a partition's journal; refuses malformed ones, and ignores fields that it does not know."""
    stored = _by_field(entries)
    if not _KINDS.issuperset(stored[_TYPE]) or _VERSION in stored:
        _refuse(partition, entries)
    try:
        return _attempts(partition, entries, stored)
    except (pa.ArrowInvalid, ValueError):
        _refuse(partition, entries)
        raise


def _by_field(entries: Sequence[Entry]) -> dict[bytes, Sequence[bytes | None]]:
    """Return the values of each field, None for what is missing. Most records have the usual fields alone, which is quick."""
    if all(tuple(fields[::2]) == _STORED for _, fields in entries):
        return {name: [fields[at] for _, fields in entries] for at, name in zip(range(1, 8, 2), _STORED, strict=True)}
    found = [dict(zip(fields[::2], fields[1::2], strict=False)) for _, fields in entries]
    names = {*_STORED, *(name for each in found for name in each)}
    return {name: [each.get(name) for each in found] for name in names}


def _attempts(
    partition: JournalPartition, entries: Sequence[Entry], stored: dict[bytes, Sequence[bytes | None]]
) -> pa.RecordBatch:
    kinds, closed_at, locks, reasons = texts = [_text(stored[name]) for name in _STORED]
    if any(text.null_count for text in texts):
        msg = "a field is missing"
        raise pa.ArrowInvalid(msg)
    frontend, _, token, attempt, _, position, since, size, length, rest = _words(locks, " ", _WORDS)
    since, attempt = since.cast(pa.int64()), attempt.cast(pa.int64())
    subscriber, item = _halves(rest, length.cast(pa.int64()))
    published = _words(position, "-", 2)[0].cast(pa.int64())
    closed = closed_at.cast(pa.int64())
    wait = pc.if_else(pc.equal(attempt, 1), pc.subtract(since, published), pa.scalar(None, pa.int64()))
    read = {
        "type": kinds,
        "item": item,
        "published": _time(published),
        "delivered": _time(since),
        "closed": _time(closed),
        "attempt": attempt.cast(pa.int32()),
        "subscriber": subscriber,
        "frontend": frontend,
        "bytes": size.cast(pa.int64()),
        "token": token.cast(pa.int64()),
        "reason": reasons,
        **{name: _named(stored.get(name.encode()), len(entries)) for name in NAMED},
        "position": position,
        "wait_ms": wait,
        "held_ms": pc.subtract(closed, since),
    }
    return _batch(ATTEMPTS, partition, entries, read)


def _named(values: Sequence[bytes | None] | None, rows: int) -> pa.Array:
    return pa.nulls(rows, pa.string()) if values is None else _text(values)


def log(partition: JournalPartition, entries: Sequence[Entry]) -> pa.RecordBatch:
    """Decode entries of a partition's log; refuses malformed ones, and ignores fields that it does not know."""
    read: dict[str, list[Any]] = {name: [] for name in LOGGED.values()}
    for offset, fields in entries:
        found = dict(zip(fields[::2], fields[1::2], strict=False))
        if tuple(fields[:4:2]) != _LOGGED[:2] or len(fields) % 2:
            msg = f"log of {partition}: the entry {offset.decode()} is not this program's: read it with the one that wrote it"
            raise Unreadable(msg)
        for name, column in LOGGED.items():
            read[column].append(found.get(name.encode()))
        if found.get(b"id") is None:
            # The service derives such an item's id from the partition and the item's position.
            read["item"][-1] = b"%d-%b" % (partition.partition, found.get(b"at", offset))
    columns: dict[str, pa.Array] = {name: _text(read[name]) for name in ("item", "key", "publisher", "at")}
    milliseconds = [int(offset.partition(b"-")[0]) for offset, _ in entries]
    columns |= {"published": _time(pa.array(milliseconds, pa.int64())), "body": pa.array(read["body"], pa.binary())}
    return _batch(LOG, partition, entries, columns)


def _batch(
    schema: pa.Schema, partition: JournalPartition, entries: Sequence[Entry], columns: dict[str, pa.Array]
) -> pa.RecordBatch:
    rows = len(entries)
    of = {
        "node": pa.repeat(pa.scalar(partition.node), rows),
        "incarnation": pa.repeat(pa.scalar(partition.incarnation), rows),
        "partition": pa.repeat(pa.scalar(partition.partition, pa.int32()), rows),
        "offset": _text([offset for offset, _ in entries]),
        **columns,
    }
    return pa.RecordBatch.from_arrays([of[name] for name in schema.names], schema=schema)


def _text(values: Sequence[bytes | None]) -> pa.Array:
    # Through bytes: Arrow then checks all of them for UTF-8 in one pass.
    return pa.array(values, pa.binary()).cast(pa.string())


def _words(texts: pa.Array, mark: str, count: int) -> list[pa.Array]:
    """Split each text at `mark` into `count` words, the last of which may contain marks; returns the words by column."""
    words = pc.split_pattern(texts, mark, max_splits=count - 1)
    if not pc.all(pc.equal(pc.list_value_length(words), count), min_count=0).as_py():
        msg = "fewer words"
        raise pa.ArrowInvalid(msg)
    flat = words.flatten()
    return [flat.take(pa.array(np.arange(number, count * len(texts), count))) for number in range(count)]


def _time(milliseconds: pa.Array) -> pa.Array:
    if pc.any(pc.greater_equal(milliseconds, _LATEST_MS), min_count=0).as_py():
        msg = "a time that no calendar has"
        raise pa.ArrowInvalid(msg)
    return pc.multiply_checked(milliseconds, 1000).cast(_TIME)


def _halves(texts: pa.Array, lengths: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Split each text at its own length in bytes, where a blank must be; copies text only into the results."""
    rows = len(texts)
    _, offsets, data = texts.buffers()
    if not rows or data is None:
        if rows:
            msg = "a lock without a holder"
            raise pa.ArrowInvalid(msg)
        return texts, texts
    bounds = np.frombuffer(offsets, np.int32)[texts.offset : texts.offset + rows + 1]
    given = lengths.to_numpy()
    if (given < 0).any() or (given >= np.diff(bounds)).any():
        msg = "a JID is longer than its line"
        raise pa.ArrowInvalid(msg)
    middles = (bounds[:-1] + given).astype(np.int32)
    if (np.frombuffer(data, np.uint8)[middles] != ord(" ")).any():
        msg = "a JID has another length"
        raise pa.ArrowInvalid(msg)
    cuts = np.empty(3 * rows + 1, np.int32)
    cuts[0:-1:3], cuts[1::3], cuts[2::3], cuts[-1] = bounds[:-1], middles, middles + 1, bounds[-1]
    parts = pa.StringArray.from_buffers(3 * rows, pa.py_buffer(cuts), data)
    parts.validate(full=True)
    return parts.take(pa.array(np.arange(0, 3 * rows, 3))), parts.take(pa.array(np.arange(2, 3 * rows, 3)))


def _refuse(partition: JournalPartition, entries: Sequence[Entry]) -> None:
    """Name the first record that cannot be read."""
    for offset, fields in entries:
        found = dict(zip(fields[::2], fields[1::2], strict=False))
        where = f"journal of {partition}: the record {offset.decode()}"
        if _VERSION in found:
            version = found[_VERSION].decode(errors="replace")
            msg = f"{where} is of version {version[:20]}, newer than this program: install the stanzaq that wrote it"
            raise Unreadable(msg)
        try:
            whole = found[_TYPE] in _KINDS and record(found)
        except (KeyError, ValueError):
            whole = False
        if not whole:
            msg = f"{where} is damaged: read on after it (startingOffsets), or remove it (XDEL)"
            raise Unreadable(msg)
    msg = f"journal of {partition}: a record after {entries[0][0].decode()} was not written by this program: inspect it (XRANGE)"
    raise Unreadable(msg)

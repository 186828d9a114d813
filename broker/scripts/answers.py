"""Reads what operations answer by the names in their headers.

Each code word has a tuple with the field `code` and its values, and so has each row within. An answer with too few or too many
values, or with a word that the header does not describe, is a defect. Pure; must not know what any operation does.
"""

from collections import namedtuple
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final

from broker.model.problems import OperationDefect
from broker.scripts.source import Operation, Shape

_REPLY: Final = Shape(("rows", "deliveries", "notices", "outbox_due", "due_ms", "more", "token"))
"""What all operations of partitions reply after `ok` (lua/lib/respond.lua)."""

Answer = Any
"""A named tuple: `code`, and the values that the header names."""

_Make = Callable[..., Answer]


class Answers:
    """The answers of one operation. A value that is absent reads as None."""

    def __init__(self, operation: Operation, others: "Callable[[str], Answers]") -> None:
        """Take its description; `others` has the answers of operations, to which it may refer."""
        self._name = operation.name
        self._others = others
        described = dict(operation.returns)
        if operation.partitioned:
            self._whole = self._make_all({"ok": described["ok"]})
            described["ok"] = _REPLY
        self._replies, self._rows = map(self._make_all, (described, operation.row_returns))

    def read(self, reply: list[Any]) -> Answer:
        """Read a whole reply; what an operation of a partition has in its `rows` is not read yet."""
        return self._read(self._replies, reply)

    def read_row(self, answer: list[Any] | bytes) -> Answer:
        """Read the answer to one row: a plain text means `ok` and this text."""
        return self._read(self._rows, [b"ok", answer] if isinstance(answer, bytes) else answer)

    def read_rows(self, rows: list[Any]) -> Answer:
        """Read the `rows` of a reply: the answer to each, or the one answer of an operation that has no rows to answer."""
        return list(map(self.read_row, rows)) if self._rows else self._read(self._whole, [b"ok", *rows])

    def _read(self, known: Mapping[bytes, _Make], values: list[Any]) -> Answer:
        try:
            return known[values[0]](*values)
        except (KeyError, TypeError, IndexError) as error:
            word, count = (values or [b""])[0], len(values[1:])
            msg = f"{self._name} answered {word!r} with {count} values, which its header does not describe: {error}"
            raise OperationDefect(msg) from error

    def _make_all(self, described: Mapping[str, Shape]) -> Mapping[bytes, _Make]:
        return {word.encode(): self._make(word, shape, "code") for word, shape in described.items()}

    def _make(self, title: str, shape: Shape, *first: str) -> _Make:
        """Return what makes a tuple of values."""
        names, nothing = (*first, *shape.names), [None] * shape.optional
        made: _Make = namedtuple(title.replace("-", "_"), names, defaults=nothing)  # type: ignore[misc]  # noqa: PYI024
        last = len(names) - 1
        inner = [(names.index(name), self._reader(name, each)) for name, each in shape.within.items()]

        def make(*given: object) -> Answer:
            values: list[Any] = list(given)
            if shape.rest:
                values[last:] = [values[last:]]
            for place, read in inner:
                if place < len(values):
                    values[place] = read(values[place])
            return made(*values)

        return make if inner or shape.rest else made

    def _reader(self, name: str, shape: Shape) -> Callable[[Any], Any]:
        """Return what reads a value that has values within; an operation may have no list instead of an empty one."""
        if shape.kind == "@":
            return lambda value: self._others(*shape.names).read_row(value)
        make = self._make(name, shape)
        if shape.kind == "{":
            return lambda value: make(*value) if value else None
        return lambda value: [make(*row) for row in value or ()]


def find_answers(operations: Mapping[str, Operation]) -> Callable[[str], Answers]:
    """Return what has the answers of operations by their names: they are prepared when they are first asked for."""

    @cache
    def find(name: str) -> Answers:
        return Answers(operations[name], find)

    return find

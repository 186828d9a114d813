"""Reads what operations answer by the names in their headers.

Each code word has a tuple with the field `code` and its values, and so has each row within. An answer with too few or too many
values, or with a word that the header does not describe, is a defect. Pure; must not know what any operation does.
"""

from collections import namedtuple
from collections.abc import Callable, Mapping
from typing import Any, Final

from broker.model.problems import OperationDefect
from broker.scripts.source import Operation, Shape

_REPLY: Final = Shape(("rows", "deliveries", "notices", "outbox_due", "due_ms", "more", "token"))
"""What all operations of partitions reply after `ok` (lua/lib/respond.lua)."""

Answer = Any
"""A named tuple: `code`, and the values that the header names."""

_MISMATCH: Final = (KeyError, TypeError, IndexError)

_Make = Callable[..., Answer]


class Answers:
    """The answers of one operation. A value that is absent reads as None."""

    def __init__(self, operation: Operation, others: Mapping[str, "Answers"]) -> None:
        """Take its description, and the answers of others, to which it may refer."""
        self._name = operation.name
        self._others = others
        described = dict(operation.returns)
        if operation.partitioned:
            self._whole = {b"ok": self._answer("ok", described["ok"])}
            described["ok"] = _REPLY
        self._replies = {word.encode(): self._answer(word, shape) for word, shape in described.items()}
        self._rows = {word.encode(): self._answer(word, shape) for word, shape in operation.row_returns.items()}

    def read(self, reply: list[Any]) -> Answer:
        """Read a whole reply; what an operation of a partition has in its `rows` is not read yet."""
        return self._read(self._replies, reply)

    def read_row(self, answer: list[Any] | bytes) -> Answer:
        """Read the answer to one row: a plain text means `ok` and this text."""
        try:
            return self._rows[b"ok"](b"ok", answer) if isinstance(answer, bytes) else self._rows[answer[0]](*answer)
        except _MISMATCH as error:
            raise self._describe(answer if isinstance(answer, list) else [b"ok", answer], error) from error

    def read_rows(self, rows: list[Any]) -> Answer:
        """Read the `rows` of a reply: the answer to each, or the one answer of an operation that has no rows to answer."""
        return list(map(self.read_row, rows)) if self._rows else self._read(self._whole, [b"ok", *rows])

    def _read(self, known: Mapping[bytes, _Make], values: list[Any]) -> Answer:
        try:
            return known[values[0]](*values)
        except _MISMATCH as error:
            raise self._describe(values, error) from error

    def _describe(self, values: list[Any], error: Exception) -> OperationDefect:
        word, count = (values or [b""])[0], len(values[1:])
        told = f"{self._name} answered {word!r} with {count} values, which its header does not describe: {error}"
        return OperationDefect(told)

    def _answer(self, word: str, shape: Shape) -> _Make:
        return self._make(word, Shape(("code", *shape.names), shape.optional, shape.rest, shape.within))

    def _make(self, title: str, shape: Shape) -> _Make:
        """Return what makes a tuple of values."""
        nothing = [None] * shape.optional
        made: _Make = namedtuple(title.replace("-", "_"), shape.names, defaults=nothing)  # type: ignore[misc]  # noqa: PYI024
        last = len(shape.names) - 1
        inner = [(shape.names.index(name), self._inner(name, *what)) for name, what in shape.within.items()]
        if not (inner or shape.rest):
            return made
        plain = min([place for place, _read in inner], default=last)

        def make(*given: object) -> Answer:
            if len(given) <= plain and not shape.rest:
                return made(*given)
            values: list[Any] = list(given)
            if shape.rest:
                values[last:] = [values[last:]]
            for place, read in inner:
                if place < len(values):
                    values[place] = read(values[place])
            return made(*values)

        return make

    def _inner(self, name: str, mark: str, what: Shape | str) -> Callable[[Any], Any]:
        """Return what reads a value that has values within; an operation may have no list instead of an empty one."""
        if isinstance(what, str):
            return lambda value: self._others[what].read_row(value)  # noqa: PLW0108  (it may be the operation itself)
        make = self._make(name, what)
        if mark == "{":
            return lambda value: make(*value) if value else None
        return lambda value: [make(*row) for row in value or ()]


class AllAnswers(dict[str, Answers]):
    """The answers of operations by name, each prepared when it is first asked for."""

    def __init__(self, operations: Mapping[str, Operation]) -> None:
        """Take the descriptions."""
        super().__init__()
        self._operations = operations

    def __missing__(self, name: str) -> Answers:
        """Prepare the answers of one operation."""
        self[name] = Answers(self._operations[name], self)
        return self[name]

"""Configuration fields: how each kind of value is read and shown. Pure; must not know any one field."""

import re
from collections.abc import Callable
from enum import Enum
from typing import Final

from broker.model.frozen import frozen
from broker.model.nodes.tree import NodeType

DIGITS: Final = 18
RATE: Final = re.compile(r"([0-9]{1,15})/([smh])")
PERIODS: Final = {"s": 1, "m": 60, "h": 3600}
DECIMAL: Final = re.compile(r"[0-9]{1,14}(?:\.[0-9]{1,3})?")

LEAST_WEIGHT: Final = 0.01
MOST_WEIGHT: Final = 100


class Group(Enum):
    """What an option is about; people read them in this order."""

    IDENTITY = "What it is"
    ACCESS = "Who may, and who is told"
    DELIVERY = "Delivery and locks"
    LIMITS = "Limits"
    RETRIES = "Retries and dead letters"
    RETENTION = "Retention and results"
    PARTITIONS = "Partitions and journal"


@frozen
class Option:
    """One configuration field: its name on the wire, the attribute it sets, and how it is read and shown.

    It belongs to nodes of the type `on`, None: to all; a log does not take one that is `of_queues`. One operation has to count
    what is `counted`, so a node that has it has one partition. The values of a field with `many` are joined by line ends.
    """

    name: str
    attribute: str
    kind: str
    group: Group
    label: str
    read: Callable[[str], object]
    choices: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    on: NodeType | None = NodeType.LEAF
    many: bool = False
    of_queues: bool = False
    counted: bool = False

    def show(self, config: object) -> str:
        """Return the field's value as in a form or a stored record."""
        value = getattr(config, self.attribute)
        if isinstance(value, Enum):
            return str(value.value)
        if isinstance(value, bool):
            return "1" if value else "0"
        if isinstance(value, float):
            return decimal(value)
        return "" if value is None else str(value)


def boolean(text: str) -> bool:
    """Read a boolean."""
    if text not in {"0", "1", "true", "false"}:
        msg = "must be 0, 1, true or false"
        raise ValueError(msg)
    return text in {"1", "true"}


@frozen
class Whole:
    """Reads whole numbers between two bounds; each of `words` means the upper one."""

    low: int
    high: int
    words: tuple[str, ...] = ()

    def __call__(self, text: str) -> int:
        """Read one number."""
        if text in self.words:
            return self.high
        # Bounded before int(): a form may hold megabytes of digits, and int() is quadratic in them.
        if not (text.isascii() and text.isdigit() and len(text) <= DIGITS and self.low <= int(text) <= self.high):
            msg = f"must be a whole number from {self.low} to {self.high}"
            raise ValueError(msg)
        return int(text)


@frozen
class Decimal:
    """Reads numbers between two bounds, with at most three decimals."""

    low: int
    high: int

    def __call__(self, text: str) -> float:
        """Read one number."""
        # Bounded before float(): a form may hold megabytes of digits.
        plain = len(text) <= DIGITS and DECIMAL.fullmatch(text)
        if not (plain and self.low <= float(text) <= self.high):
            msg = f"must be a number from {self.low} to {self.high} with at most three decimals"
            raise ValueError(msg)
        return float(text)


@frozen
class Rate:
    """Reads rates like `100/s`, up to a number in each second, minute or hour; an empty text is none."""

    most: int

    def __call__(self, text: str) -> str:
        """Read one rate."""
        plain = len(text) <= DIGITS and RATE.fullmatch(text)
        if text and not (plain and 1 <= int(plain[1]) <= self.most):
            msg = f"must be a rate from 1 to {self.most}, in each s, m or h, as 100/s; or empty for none"
            raise ValueError(msg)
        return f"{int(plain[1])}/{plain[2]}" if plain else ""


@frozen
class Words:
    """Reads some of these words, in any order, with blanks between; an empty text is none."""

    known: tuple[str, ...]

    def __call__(self, text: str) -> str:
        """Read the words, in the order of those that are known."""
        found = set(text.split(" ")) - {""}
        if not found <= set(self.known):
            msg = f"must be {' or '.join(self.known)}, or several of these with blanks between; or empty for none"
            raise ValueError(msg)
        return " ".join(word for word in self.known if word in found)


@frozen
class Weights:
    """Reads lines like `KEY=3`: up to `most` names with a weight each, in up to so many bytes."""

    most: int
    limit: int

    def __call__(self, text: str) -> str:
        """Read the lines; an empty text is none."""
        if len(text.encode()) > self.limit:
            msg = f"must be no longer than {self.limit} bytes"
            raise ValueError(msg)
        found = [line.rpartition("=") for line in text.split("\n") if line]
        if len(found) > self.most:
            msg = f"must be at most {self.most} lines"
            raise ValueError(msg)
        if len({name for name, _, _ in found}) < len(found):
            msg = "must not name a key or publisher twice"
            raise ValueError(msg)
        return "\n".join(f"{name}={_weight(name, number)}" for name, _, number in found)


def _weight(name: str, number: str) -> str:
    plain = name and len(number) <= DIGITS and DECIMAL.fullmatch(number)
    if not (plain and LEAST_WEIGHT <= float(number) <= MOST_WEIGHT):
        msg = f"must be lines as KEY=3, with weights from {LEAST_WEIGHT} to {MOST_WEIGHT} and at most three decimals"
        raise ValueError(msg)
    return decimal(float(number))


def rate_rule(rate: str, burst: int = 0) -> str:
    """Return a rate as operations read it: items, period in ms, burst; 0 0 0 for none."""
    number, _, period = rate.partition("/")
    return f"{number} {PERIODS[period] * 1000} {burst}" if rate else "0 0 0"


def decimal(value: float) -> str:
    """Write a number in the shortest form that `Decimal` reads."""
    return f"{value:.3f}".rstrip("0").rstrip(".")


@frozen
class Text:
    """Reads texts of up to so many bytes."""

    limit: int

    def __call__(self, text: str) -> str:
        """Read one text."""
        if len(text.encode()) > self.limit:
            msg = f"must be no longer than {self.limit} bytes"
            raise ValueError(msg)
        return text


def values(kind: type[Enum]) -> tuple[str, ...]:
    """Return all values of an enumeration."""
    return tuple(str(member.value) for member in kind)

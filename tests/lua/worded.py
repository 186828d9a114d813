"""Names that queue tests share: subscribers, and ids as hard as XML allows."""

from typing import Final

ALICE: Final = "alice@x"
BOB: Final = "bob@x"
W1: Final = "w1@x/a"
W2: Final = "w2@x/a"
W3: Final = "w3@x/a"

HARD: Final = (
    " ",
    "two words",
    "line\nbreak",
    "tab\there",
    "ünïcödé 🐇 \u200b",
    "0-1-1",
    "0-007-0",
    "0-99999999999999999999999-0",
    "0-1-99999999999999999999999",
    "%s %d %",
    "a:b;c",
    "'\"\\",
    "x" * 1023,
)
"""Item ids that have broken queues before: blanks, ids like the service's own, ids that formats would read."""

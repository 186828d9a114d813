"""Draws the picture of the command line in docs, docs/terminal.svg, from made-up figures by the product's own views."""

import io
import re
from collections import Counter
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.text import Text

from frontends.commands.watching import live

TARGET: Final = Path(__file__).resolve().parents[1] / "docs" / "terminal.svg"

_WORKERS: Final = ("worker@example.org/a", "worker@example.org/b")
_BEGAN_MS: Final = 1_795_296_950_257
_NODES: Final = (
    live.Activity("orders", "running", 412.0, 409.5, 31, 40, 0, 310, 8),
    live.Activity("invoices", "running", 55.5, 55.0, 2, 5, 120, 90, 2),
    live.Activity("mails", "paused", 9.5, 0.0, 18_204, 0, 0, 1_920_000, 4),
)
_ENDED: Final = (
    ("acknowledged", "order-4117", 1, 180, 0, ""),
    ("acknowledged", "order-4118", 1, 95, 1, ""),
    ("released", "order-4102", 2, 2_040, 0, "no stock"),
    ("expired", "order-4090", 1, 30_000, 1, ""),
    ("dead-lettered", "order-4021", 5, 210, 1, "max-deliveries"),
)


def _records() -> list[live.EndedAttempt]:
    found = []
    for number, (kind, item, attempt, held, worker, reason) in enumerate(_ENDED):
        closed = _BEGAN_MS + number * 137
        record: dict[str, str | int] = {"type": kind, "item": item, "delivered": closed - held, "closed": closed}
        record |= {"attempt": attempt, "subscriber": _WORKERS[worker], "reason": reason}
        found.append(live.EndedAttempt("orders", number % 2, record))
    return found


def svg() -> str:
    """Return the picture."""
    console = Console(
        record=True, width=122, height=40, force_terminal=True, color_system="truecolor", file=io.StringIO()
    )

    def prompt(command: str) -> None:
        console.print(Text.assemble(("$ ", "bold"), command))

    prompt("""stanzaq item publish orders --payload '{"total": 12}' --id order-4117""")
    console.print(Text("order-4117"))
    prompt("stanzaq top")
    waiting = sum(each.waiting for each in _NODES)
    caption = f"{len(_NODES)} nodes, {waiting} items wait"
    console.print(live.draw(live.NODES, [each.cells() for each in _NODES], caption, console.width))
    prompt("stanzaq journal tail --node orders")
    outcomes = live.counts(Counter(each[0] for each in _ENDED))
    console.print(live.draw(live.ATTEMPTS, [each.cells() for each in _records()], outcomes, console.width))
    drawn = console.export_svg(title="stanzaq", unique_id="stanzaq")
    # Its fonts would come from elsewhere: the reader's own serve as well.
    return re.sub(r"@font-face \{.*?\}\s*", "", drawn, flags=re.DOTALL)


if __name__ == "__main__":
    TARGET.write_text(svg())

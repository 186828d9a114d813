"""What `stanzaq top` and `stanzaq journal tail` show."""

import io

from rich.console import Console

from broker.model.names import Jid
from broker.model.nodes.nodes import Affiliation, NodeRecord
from broker.model.nodes.options import NodeConfig
from broker.model.results import Counted, Summary
from deploy import terminal_picture
from frontends.commands.watching import live


def _look(name: str, incarnation: str, waiting: int, published: int, finished: int) -> Summary:
    counted = Counted(waiting, waiting, 0, 1, 0, 1_500, 2, 3, published=published, finished=finished)
    affiliations = {Jid("alice@x"): Affiliation.OWNER}
    return Summary(NodeRecord(name, incarnation, 1, NodeConfig(), affiliations), counted)


def test_rates() -> None:
    """Rates are differences of totals by time; busy nodes come first, and a node that was made again begins at nothing."""
    before = [_look("quiet", "a", 0, 5, 5), _look("busy", "b", 0, 100, 90), _look("again", "c", 0, 1_000, 1_000)]
    now = [_look("quiet", "a", 0, 5, 5), _look("long", "d", 9, 7, 0), _look("busy", "b", 3, 120, 100)]
    now.append(_look("again", "e", 0, 2, 1))
    found = live.activity({each.record.name: each for each in before}, now, 2.0)
    assert [each.node for each in found] == ["busy", "long", "again", "quiet"]
    assert (found[0].published, found[0].finished, found[0].waiting) == (10.0, 5.0, 3)
    assert all((each.published, each.finished) == (0.0, 0.0) for each in found[1:])
    assert found[0].cells() == ("busy", "running", "10.0", "5.0", "3", "1", "0", "1 s", "2")


def test_a_narrow_view() -> None:
    """On 80 columns the less important ones go, none is cut."""
    rows = [("orders", "running", "10000.0", "10000.0", "1000000", "1000", "100", "10 min", "1000")] * 3
    drawn = io.StringIO()
    Console(width=80, file=drawn).print(live.draw(live.NODES, rows, "", 80))
    lines = drawn.getvalue().splitlines()
    assert all(len(line) <= 80 for line in lines) and "…" not in "".join(lines) and "waiting" in lines[0]


def test_the_picture_is_of_today() -> None:
    """docs/terminal.svg is what the views draw: after a change of them, `make terminal-picture`."""
    assert terminal_picture.TARGET.read_text() == terminal_picture.svg()

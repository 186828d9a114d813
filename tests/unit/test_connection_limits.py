"""Limits of connections: nobody takes those of others, in any order of events."""

from collections import Counter

from hypothesis import example, given
from hypothesis import strategies as st

from frontends.logins.connection_limits import ConnectionLimits


class Line:
    """A connection."""

    def __init__(self) -> None:
        """Begin."""
        self.closed = False

    def make_room(self) -> None:
        """Close."""
        self.closed = True


# One account at its bound, and one address at its: by chance both are rare.
@example([step for number in range(4) for step in (("enter", number, number % 2), ("claim", number, 0))])
@example([step for number in range(6) for step in (("enter", number, 0), ("claim", number, number % 3))])
@given(st.lists(st.tuples(st.sampled_from(["enter", "claim", "leave"]), st.integers(0, 30), st.integers(0, 2))))
def test_any_order(steps: list[tuple[str, int, int]]) -> None:
    """There are never more connections than allowed, nor more of an account, of an address, or of nobody than they may have."""
    limits, lines, accounts = ConnectionLimits(8, 3, 5), list[Line](), dict[Line, str]()
    for step, number, who in steps:
        if step == "enter":
            line = Line()
            if limits.enter(line, f"address{who}"):
                lines.append(line)
        elif lines:
            line = lines[number % len(lines)]
            if step == "leave":
                limits.leave(line)
                lines.remove(line)
            elif not limits.claim(line, f"account{who}"):
                accounts[line] = f"account{who}"
        assert not any(line.closed for line in lines if line in accounts), "nobody who has logged in makes room"
        lines = [line for line in lines if not line.closed]
        assert len(lines) == len(limits._held) <= 8
        assert len([line for line in lines if line not in accounts]) <= 2
        assert all(held <= 3 for held in Counter(accounts[line] for line in lines if line in accounts).values())
        assert all(held <= 5 for held in limits._addresses.values())
    for line in lines:
        limits.leave(line)
    assert not (limits._held or limits._strangers or limits._accounts or limits._addresses)

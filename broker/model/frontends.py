"""What administrators may ask of the frontends themselves, and how that turns out. Values only, as other commands are."""

from dataclasses import dataclass

from broker.model.names import Jid


@dataclass(frozen=True, slots=True)
class Frontends:
    """List the frontends that there are."""

    sender: Jid


@dataclass(frozen=True, slots=True)
class Disconnect:
    """Have a frontend end: the others take over at once what it owes, and itself drains when it hears of it."""

    sender: Jid
    frontend: str


@dataclass(frozen=True, slots=True)
class Heard:
    """A frontend that was heard of so long ago, or since then is `disconnected_by` somebody and not gone yet.

    Items are sent through the `door` xmpp alone; at the others they are come for, so nobody takes over from those frontends.
    """

    name: str
    ago_ms: int
    disconnected_by: str
    door: str = "xmpp"


@dataclass(frozen=True, slots=True)
class FrontendList:
    """The frontends, those that send items first; of both kinds those that were not heard of for longest, at most 1,000."""

    frontends: tuple[Heard, ...]


@dataclass(frozen=True, slots=True)
class Disconnected:
    """The frontend ends when it hears of it; not `listed`: it had ended, or lapsed, and the others have done what it owed."""

    listed: bool

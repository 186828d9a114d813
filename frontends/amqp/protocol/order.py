"""What a peer may say when (part 2 §2.4 to §2.7): each of its frames is checked before proton has it. Pure; must not know links.

proton forgives much that the specification calls an error: it drops what it cannot read, gives a handle that is in use to another
link, and takes a missing field for a zero. Here all this ends the connection, with the condition that the specification has for
it. What proton refuses itself is left to it: windows, and links of one name.
"""

from dataclasses import dataclass, field
from typing import Any, Final

from frontends.amqp.errors import (
    FRAMING,
    HANDLE_IN_USE,
    ILLEGAL_STATE,
    INVALID_FIELD,
    LIMIT,
    NOT_ALLOWED,
    NOT_IMPLEMENTED,
    UNATTACHED_HANDLE,
    Fault,
)
from frontends.amqp.protocol import types
from frontends.amqp.protocol.grammar import Code, Performative, performative

_FRAME_LEAST: Final = 512
_TAG_BYTES: Final = 32
_IDS: Final = 2**32
_LINKS_MOST: Final = 1_000
"""Links that a peer has attached and not detached, refused ones among them: what it asks for is kept until then."""

_TRANSACTIONAL: Final = 0x34
_UNSETTLED, _SETTLED, _MIXED = range(3)

# Places of fields, each among those of its performative.
_FRAME_SIZE: Final = 2
_LINK_HANDLE, _ROLE, _SENDER_MODE, _RECEIVER_MODE, _FIRST_COUNT = 1, 2, 3, 4, 9
_FLOW_HANDLE: Final = 4
_OF_A_LINK: Final = range(5, 9)
_HANDLE: Final = 0


@dataclass(slots=True)
class _Link:
    """A link as the peer has attached it; of a delivery that is begun what its first transfer has said."""

    sends: bool
    mode: int
    begun: bool = False
    settled: bool = False
    number: int = 0
    tag: bytes = b""
    format: int = 0


@dataclass(slots=True)
class _Session:
    """A session: its links by their handles, and the id that the next delivery must have, once there was one."""

    links: dict[int, _Link] = field(default_factory=dict)
    next: int | None = None


class Order:
    """One connection, as far as its peer has gone."""

    def __init__(self, channels: int) -> None:
        """Begin after the header of AMQP, with so many channels."""
        self._channels = channels
        self._open = self._closed = False
        self._sessions: dict[int, _Session] = {}
        self.format = 0
        """Format of the message of which the last frame had a part; 0 when it had none of any."""

    def check(self, frame: bytes) -> None:
        """Take the next frame; raises Fault when the peer may not say that, or not now."""
        self.format = 0
        said = None if self._closed else performative(frame)
        if said is None:
            return
        if (said.code is Code.OPEN) is self._open:
            raise Fault(ILLEGAL_STATE, "a connection begins with an open, and has one alone")
        match said.code:
            case Code.OPEN:
                self._opens(said)
            case Code.BEGIN:
                self._begins(said)
            case Code.CLOSE:
                self._closed = True
            case _:
                self._within(said.code, said.channel, said.fields)

    def _opens(self, said: Performative) -> None:
        if said.channel:
            raise Fault(FRAMING, "the open is sent on channel 0")
        most = said.fields[_FRAME_SIZE]
        if most is not None and most < _FRAME_LEAST:
            raise Fault(INVALID_FIELD, f"frames have at least {_FRAME_LEAST} bytes")
        self._open = True

    def _begins(self, said: Performative) -> None:
        if said.channel >= self._channels:
            raise Fault(FRAMING, f"channels are below {self._channels}")
        if said.channel in self._sessions:
            raise Fault(ILLEGAL_STATE, "the channel has a session")
        self._sessions[said.channel] = _Session()

    def _within(self, code: Code, channel: int, said: list[Any]) -> None:
        session = self._sessions.get(channel)
        if session is None:
            raise Fault(NOT_ALLOWED, "the channel has no session")
        match code:
            case Code.TRANSFER:
                self.format = _transfers(session, said)
            case Code.ATTACH:
                if sum(len(each.links) for each in self._sessions.values()) >= _LINKS_MOST:
                    raise Fault(LIMIT, f"{_LINKS_MOST} links are attached")
                _attaches(session.links, said)
            case Code.FLOW:
                _flows(session.links, said)
            case Code.DISPOSITION:
                _disposes(said)
            case Code.DETACH:
                _link(session.links, said[_HANDLE])
                del session.links[said[_HANDLE]]
            case Code.END:
                del self._sessions[channel]


def _link(links: dict[int, _Link], handle: int) -> _Link:
    link = links.get(handle)
    if link is None:
        raise Fault(UNATTACHED_HANDLE, f"no link has the handle {handle}")
    return link


def _attaches(links: dict[int, _Link], said: list[Any]) -> None:
    handle, receives, sender, receiver = (said[place] for place in (_LINK_HANDLE, _ROLE, _SENDER_MODE, _RECEIVER_MODE))
    if handle in links:
        raise Fault(HANDLE_IN_USE, f"another link has the handle {handle}")
    if (sender or 0) > _MIXED or (receiver or 0) > 1:
        raise Fault(INVALID_FIELD, "there is no such settle mode")
    if not receives and said[_FIRST_COUNT] is None:
        raise Fault(INVALID_FIELD, "a sender says its initial delivery count")
    links[handle] = _Link(not receives, _MIXED if sender is None else sender)


def _flows(links: dict[int, _Link], said: list[Any]) -> None:
    if said[_FLOW_HANDLE] is not None:
        _link(links, said[_FLOW_HANDLE])
    elif any(said[each] is not None for each in _OF_A_LINK):
        raise Fault(INVALID_FIELD, "the flow is of a link, and has no handle")


def _disposes(said: list[Any]) -> None:
    _role, first, last, _settled, state, _batchable = said
    # Ids go round (part 2 §2.8.9).
    if last is not None and (last - first) % _IDS >= _IDS // 2:
        raise Fault(INVALID_FIELD, "a disposition is of no delivery")
    _transactional(state)


def _transfers(session: _Session, said: list[Any]) -> int:
    """Go on with a delivery, or begin one, and give the format of its message."""
    handle, number, tag, form, settled, more, mode, state, resume, aborted, _batchable = said
    link = _link(session.links, handle)
    if not link.sends:
        raise Fault(ILLEGAL_STATE, "the peer receives over the link")
    if resume:
        raise Fault(NOT_IMPLEMENTED, "deliveries are not resumed here")
    if mode:
        raise Fault(INVALID_FIELD, "the receiver of the link settles first")
    _transactional(state)
    if not link.begun:
        if number is None or tag is None or len(tag) > _TAG_BYTES:
            raise Fault(INVALID_FIELD, f"a delivery has an id, and a tag of at most {_TAG_BYTES} bytes")
        if session.next not in {None, number}:
            raise Fault(INVALID_FIELD, f"the next delivery of the session has the id {session.next}")
        session.next = (number + 1) % _IDS
        link.number, link.tag, link.format, link.settled = number, tag, form or 0, False
    elif number not in {None, link.number} or tag not in {None, link.tag} or form not in {None, link.format}:
        raise Fault(INVALID_FIELD, "a delivery goes on under another id, tag or format")
    link.settled = link.settled or bool(settled)
    link.begun = bool(more) and not aborted
    if link.mode == (_UNSETTLED if link.settled else _SETTLED) and not (link.begun or aborted):
        raise Fault(INVALID_FIELD, "a delivery is settled, or not, against what the attach says")
    return link.format


def _transactional(state: bytes | None) -> None:
    """Refuse what is to be part of a transaction (part 4): nobody can have declared one."""
    if state is not None and types.described(state, 0)[0] == _TRANSACTIONAL:
        raise Fault(NOT_IMPLEMENTED, "there are no transactions here")

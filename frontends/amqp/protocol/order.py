"""Checks each frame of a peer before proton gets it: what is allowed when (part 2 §2.4 to §2.7). Pure; must not know links.

proton tolerates much that the specification calls an error: it drops what it cannot parse, reassigns a handle in use, and
takes a missing field for zero. Here each of these ends the connection, with the condition of the specification. Errors that
proton detects itself stay with it: windows, and several links of one name.
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
"""The most links that a peer may have attached and not detached, including refused ones, whose state is kept until then."""

_TRANSACTIONAL: Final = 0x34
_UNSETTLED, _SETTLED, _MIXED = range(3)

# Indexes of fields within their performatives.
_FRAME_SIZE: Final = 2
_LINK_HANDLE, _ROLE, _SENDER_MODE, _RECEIVER_MODE, _FIRST_COUNT = 1, 2, 3, 4, 9
_FLOW_HANDLE: Final = 4
_OF_A_LINK: Final = range(5, 9)
_HANDLE: Final = 0


@dataclass(slots=True)
class _Link:
    """A link that the peer has attached; for an incomplete delivery, the values of its first transfer."""

    sends: bool
    mode: int
    begun: bool = False
    settled: bool = False
    number: int = 0
    tag: bytes = b""
    format: int = 0


@dataclass(slots=True)
class _Session:
    """A session: its links by handle, and the id of the next delivery, once there was one."""

    links: dict[int, _Link] = field(default_factory=dict)
    next: int | None = None


class Order:
    """The state of one connection's peer."""

    def __init__(self, channels: int) -> None:
        """Start after the AMQP header, with a number of channels."""
        self._channels = channels
        self._open = self._closed = False
        self._sessions: dict[int, _Session] = {}
        self._ended: set[int] = set()
        self.format = 0
        """The format of the message that the last frame belonged to; 0 for none."""

    def check(self, frame: bytes) -> bool:
        """Check the next frame and return whether it has a meaning; raises Fault when it is not allowed now.

        An outcome for a session that the peer has ended has none. rhea sends it when a transfer crosses its end.
        """
        self.format = 0
        said = None if self._closed else performative(frame)
        if said is None:
            return True
        if said.code is Code.DISPOSITION and said.channel in self._ended:
            return False
        if (said.code is Code.OPEN) is self._open:
            raise Fault(ILLEGAL_STATE, "a connection begins with exactly one open")
        match said.code:
            case Code.OPEN:
                self._check_open(said)
            case Code.BEGIN:
                self._check_begin(said)
            case Code.CLOSE:
                self._closed = True
            case _:
                self._check_in_session(said.code, said.channel, said.fields)
        return True

    def _check_open(self, said: Performative) -> None:
        if said.channel:
            raise Fault(FRAMING, "the open must be sent on channel 0")
        most = said.fields[_FRAME_SIZE]
        if most is not None and most < _FRAME_LEAST:
            raise Fault(INVALID_FIELD, f"max-frame-size must be at least {_FRAME_LEAST}")
        self._open = True

    def _check_begin(self, said: Performative) -> None:
        if said.channel >= self._channels:
            raise Fault(FRAMING, f"the channel must be below {self._channels}")
        if said.channel in self._sessions:
            raise Fault(ILLEGAL_STATE, "the channel already has a session")
        self._sessions[said.channel] = _Session()
        self._ended.discard(said.channel)

    def _check_in_session(self, code: Code, channel: int, said: list[Any]) -> None:
        session = self._sessions.get(channel)
        if session is None:
            raise Fault(NOT_ALLOWED, "the channel has no session")
        match code:
            case Code.TRANSFER:
                self.format = _transfers(session, said)
            case Code.ATTACH:
                if sum(len(each.links) for each in self._sessions.values()) >= _LINKS_MOST:
                    raise Fault(LIMIT, f"at most {_LINKS_MOST} links may be attached")
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
                self._ended.add(channel)


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
        raise Fault(INVALID_FIELD, "unknown settle mode")
    if not receives and said[_FIRST_COUNT] is None:
        raise Fault(INVALID_FIELD, "a sender needs an initial delivery count")
    links[handle] = _Link(not receives, _MIXED if sender is None else sender)


def _flows(links: dict[int, _Link], said: list[Any]) -> None:
    if said[_FLOW_HANDLE] is not None:
        _link(links, said[_FLOW_HANDLE])
    elif any(said[each] is not None for each in _OF_A_LINK):
        raise Fault(INVALID_FIELD, "the flow has fields of a link but no handle")


def _disposes(said: list[Any]) -> None:
    _role, first, last, _settled, state, _batchable = said
    # Ids wrap around (part 2 §2.8.9).
    if last is not None and (last - first) % _IDS >= _IDS // 2:
        raise Fault(INVALID_FIELD, "the disposition names no delivery")
    _transactional(state)


def _transfers(session: _Session, said: list[Any]) -> int:
    """Continue or begin a delivery, and return the format of its message."""
    handle, number, tag, form, settled, more, mode, state, resume, aborted, _batchable = said
    link = _link(session.links, handle)
    if not link.sends:
        raise Fault(ILLEGAL_STATE, "the peer receives over the link")
    if resume:
        raise Fault(NOT_IMPLEMENTED, "resuming deliveries is not supported")
    if mode:
        raise Fault(INVALID_FIELD, "rcv-settle-mode must be first")
    _transactional(state)
    if not link.begun:
        if number is None or tag is None or len(tag) > _TAG_BYTES:
            raise Fault(INVALID_FIELD, f"a delivery needs an id, and a tag of at most {_TAG_BYTES} bytes")
        if session.next not in {None, number}:
            raise Fault(INVALID_FIELD, f"the next delivery of the session has the id {session.next}")
        session.next = (number + 1) % _IDS
        link.number, link.tag, link.format, link.settled = number, tag, form or 0, False
    elif number not in {None, link.number} or tag not in {None, link.tag} or form not in {None, link.format}:
        raise Fault(INVALID_FIELD, "a delivery continues with another id, tag or format")
    link.settled = link.settled or bool(settled)
    link.begun = bool(more) and not aborted
    if link.mode == (_UNSETTLED if link.settled else _SETTLED) and not (link.begun or aborted):
        raise Fault(INVALID_FIELD, "a delivery contradicts the settle mode of its link")
    return link.format


def _transactional(state: bytes | None) -> None:
    """Refuse a state of a transaction (part 4): none can have been declared."""
    if state is not None and types.read_descriptor(state, 0)[0] == _TRANSACTIONAL:
        raise Fault(NOT_IMPLEMENTED, "transactions are not supported")

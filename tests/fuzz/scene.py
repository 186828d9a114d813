"""The start of the fuzz tests: the stanzas of the corpus and of XEP-0254, and a queue at work for them.

Must not know the effect of any of them.
"""

from pathlib import Path
from typing import Final

from tests.fuzz.frontend import ADMIN, DOMAIN

NODE: Final = "a290fjsl29j19kjb"
ITEM: Final = "ae890ac52d0df67ed7cfdf51b644e901"
WORKER: Final = "workerbee237@shakespeare.lit/foo"
ENGINE: Final = "engine.shakespeare.lit"

_HERE: Final = Path(__file__).parent
FILES: Final = (*sorted((_HERE / "corpus").iterdir()), *sorted((_HERE.parent / "golden" / "xep0254").iterdir()))
STANZAS: Final = {path.stem: path.read_bytes() for path in FILES}
"""One stanza each; those that end the stream too."""

_PUBSUB: Final = "http://jabber.org/protocol/pubsub"


def iq(inside: str, sender: str = WORKER, kind: str = "set", request: str = "r") -> bytes:
    """Write a request to the service."""
    return f"<iq type='{kind}' id='{request}' from='{sender}' to='{DOMAIN}'>{inside}</iq>".encode()


def pubsub(inside: str, space: str = _PUBSUB) -> str:
    """Write `<pubsub/>` around a request."""
    return f"<pubsub xmlns='{space}'>{inside}</pubsub>"


def _publish(item: str) -> bytes:
    return iq(pubsub(f"<publish node='{NODE}'><item id='{item}'><a xmlns='urn:x'/></item></publish>"), ENGINE)


ACTS: Final = (
    # Whatever the last example has made of it.
    iq(pubsub(f"<delete node='{NODE}'/>", f"{_PUBSUB}#owner"), ADMIN),
    iq(pubsub(f"<create node='{NODE}'/>"), ENGINE),
    f"<presence from='{WORKER}' to='{DOMAIN}'/>".encode() + STANZAS["subscribe"],
    _publish(ITEM) + b"".join(_publish(f"waiting-{number}") for number in range(3)),
)
"""Make a new queue, of which the worker holds four items and has credit for one more."""

"""The option by which a subscription selects its items, read and shown. Must not know the grammar, which is the core's."""

from typing import Final

from broker.model.results import Subscribed
from frontends.xmpp.xml import forms

SELECTOR: Final = "stanzaq#selector"


def wanted(values: tuple[str, ...]) -> str:
    """Take a selector; several values are its lines, and an empty one takes whatever comes."""
    return "\n".join(values).strip()


def granted(subscribed: Subscribed) -> tuple[forms.Field, ...]:
    """Show what was granted, if anything was."""
    return (forms.Field(SELECTOR, (subscribed.selector,)),) if subscribed.selector else ()


def offered(subscribed: Subscribed) -> tuple[forms.Field, ...]:
    """Show what may be changed: neither a stream nor an owner selects."""
    if subscribed.reads or subscribed.group:
        return ()
    return (forms.Field(SELECTOR, (subscribed.selector,), "text-single"),)

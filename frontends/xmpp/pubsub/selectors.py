"""The selector option of a subscription. Must not know the grammar, which is the core's."""

from typing import Final

from broker.model.results import Subscribed
from frontends.xmpp.xml import forms

SELECTOR: Final = "stanzaq#selector"


def read_selector(values: tuple[str, ...]) -> str:
    """Read a selector; several values are its lines, and an empty one selects everything."""
    return "\n".join(values).strip()


def granted_field(subscribed: Subscribed) -> tuple[forms.Field, ...]:
    """Return the granted selector as a field, if there is one."""
    return (forms.Field(SELECTOR, (subscribed.selector,)),) if subscribed.selector else ()


def offered_field(subscribed: Subscribed) -> tuple[forms.Field, ...]:
    """Return the field for a change: streams and owners have no selector."""
    if subscribed.reads or subscribed.group:
        return ()
    return (forms.Field(SELECTOR, (subscribed.selector,), "text-single"),)

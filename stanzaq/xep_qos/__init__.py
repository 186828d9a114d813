"""At-least-once and exactly-once messages (`urn:xmpp:qos`) for senders that use slixmpp.

Knows only slixmpp and the standard library, so that any client can use it; must not know the rest of this project.
"""

from slixmpp.plugins.base import register_plugin

from stanzaq.xep_qos.exchange import Refused, Unconfirmed, Undelivered
from stanzaq.xep_qos.outbox import MemoryOutbox, Outbox, Outstanding, Step
from stanzaq.xep_qos.plugin import XepQos

__all__ = ["MemoryOutbox", "Outbox", "Outstanding", "Refused", "Step", "Unconfirmed", "Undelivered", "XepQos"]

register_plugin(XepQos)

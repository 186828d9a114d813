"""Names of the audit: its log, who writes it, and from where a command comes. Must not know what is written."""

from contextvars import ContextVar
from typing import Final

from broker.model.names import Jid

NODE: Final = "stanzaq/audit"
"""The log of administrative changes: nobody else's node has this name."""

SERVICE: Final = Jid("audit@stanzaq.invalid")
"""The service itself, which owns this log: an account that nobody can have, since its domain never exists (RFC 2606)."""

ADDRESS: Final[ContextVar[str]] = ContextVar("stanzaq-address", default="")
"""From where the present request comes, if its door knows more than the sender's JID: an address, or a user of a host."""

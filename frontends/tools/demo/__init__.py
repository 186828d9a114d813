"""The demonstration: a complete queue on one machine. Its clients know only XMPP: no core, no Redis, no part of a door."""

"""A whole queue on one machine, to be seen at work. Its clients know XMPP alone: no core, no Redis, no door's inside."""

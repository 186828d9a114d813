"""Ad-hoc commands (XEP-0050) for administration from any XMPP client. Must not know the core."""

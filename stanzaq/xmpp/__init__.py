"""The transport over XMPP: XEP-0254 with the extensions of `urn:stanzaq:0` (docs/protocol.md)."""

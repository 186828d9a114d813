"""Authenticates a peer: by SASL, a TLS certificate, or tokens signed with shared keys. Must not know links."""

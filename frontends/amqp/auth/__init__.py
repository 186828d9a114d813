"""Who a peer is: by SASL, by its certificate, or by tokens that are signed with shared keys. Must not know links."""

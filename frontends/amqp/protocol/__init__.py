"""The protocol: frames, types, SASL, and proton's engine. Must not know what a link is for."""

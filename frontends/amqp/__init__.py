"""The AMQP 1.0 door (Event Stream Extensions): links to commands, and the log to deliveries.

`engine` and `bonds` (which alone meet proton), `connection`, `attaching`, `sending`, `feeds`, `queries`, `tides`, `shared` and
`server` are the shell; all else is translation and knows no connection. Must not know Redis.
"""

"""The AMQP 1.0 door (Event Stream Extensions): links to commands, the log to deliveries, and items of queues to workers.

`engine` and `bonds` (which alone meet proton), `connection`, `attaching`, `sending`, `feeds`, `workers`, `holding`, `queries`,
`tides`, `shared` and `server` are the shell; all else is translation and knows no connection. Must not know Redis.
"""

"""The AMQP 1.0 door (Event Stream Extensions): links to commands, and the log to deliveries.

`engine`, `connection`, `sending`, `feeds`, `queries` and `server` are the shell, and all but the last meet proton through `engine`; all else is
translation and knows no connection. Must not know Redis.
"""

"""The Event Hubs profile of the AMQP door: requests of Azure Event Hubs SDKs as commands, and events in the form they expect.

`profile` is the entry of a connection. `attach`, `producer` and `request_links` do I/O; all other modules only translate.
Must not know Redis.
"""

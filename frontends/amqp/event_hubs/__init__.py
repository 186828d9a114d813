"""The Event Hubs profile of the AMQP door: what the SDKs of Azure Event Hubs say, as commands, and events as they read them.

`profile` is what a connection meets; `attach`, `producer` and `request_links` are the shell beside it; all else is translation
and knows no connection. Must not know Redis.
"""

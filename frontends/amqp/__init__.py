"""The AMQP 1.0 door: queue nodes and event streams (OASIS Event Stream Extensions), and what SDKs of Event Hubs say.

`protocol` has frames, types and proton's engine, `messages` a message and its outcomes, `links` what serves each link,
`event_hubs` the profile of Event Hubs. `server` and `connection` join them. Must not know Redis.
"""

"""The AMQP 1.0 door: queues, event streams (OASIS Event Stream Extensions), and the profile for SDKs of Event Hubs.

`protocol` has frames, types and proton's engine; `messages` a message and its outcomes; `links` the handler of each kind of
link; `event_hubs` the profile. `server` and `connection` join them. Must not know Redis.
"""

"""The RESTful Queue: HTTP requests to commands, and results to HTTP answers.

`app`, `connection` and `server` do I/O. `auth` identifies the sender; `queues`, `subscriptions` and `admin` have requests,
handlers and views; `formats` writes bodies. These know no framework. Must not know Redis.
"""

"""The RESTful Queue: HTTP to commands and results to HTTP.

`app`, `connection` and `server` are the shell. `auth` tells who asks; `queues`, `subscriptions` and `admin` have requests,
handlers and views; `formats` has what bodies look like. These know no framework. Must not know Redis.
"""

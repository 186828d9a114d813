"""The RESTful Queue: HTTP to commands and results to HTTP.

`door`, `connection` and `server` are the shell; all else is translation and knows no framework. Must not know Redis.
"""

"""The XMPP door (XEP-0254 over XEP-0060, as an XEP-0114 component).

Pure modules turn elements into commands and results into bytes; they know neither slixmpp nor asyncio. Only `stream` knows
slixmpp, only `component` knows the core's interface. `xml` reads and writes elements; `pubsub`, `messages` and `adhoc`
translate their protocols; `requests` and `replies` are the tables in and out.
"""

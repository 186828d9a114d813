"""The XMPP door (XEP-0254 over XEP-0060, as an XEP-0114 component).

Pure modules turn an element into a command and a result into bytes; they know neither slixmpp nor asyncio. Only `stream`
knows slixmpp, only `component` knows the core's interface. `xml` reads and writes elements; `pubsub`, `messages` and `adhoc` have
what each protocol says; `requests` and `replies` are the tables on the way in and out.
"""

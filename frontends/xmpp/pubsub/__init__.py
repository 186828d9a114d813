"""Requests of XEP-0060 and XEP-0254: what they say, and what is shown of nodes and subscriptions. Must not know the core."""

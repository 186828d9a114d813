"""Requests of XEP-0060 and XEP-0254, and views of nodes and subscriptions. Must not know the core."""

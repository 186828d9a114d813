"""Subscribing, approvals, lists, and waiting for items. Must not know how a partition works."""

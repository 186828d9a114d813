"""Subscriptions and what their owners take by them: requests, operations, events."""

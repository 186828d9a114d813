"""Queues and their messages: requests, handlers, views."""

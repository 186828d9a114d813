"""Queues and their messages: what requests say, which operations answer them, what is shown."""

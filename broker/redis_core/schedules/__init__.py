"""Recurring publishes on a node: their times, their records, and who publishes for them."""

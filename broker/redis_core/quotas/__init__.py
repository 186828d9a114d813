"""Quotas: those that are stored, what is used of them, and how administrators see and set them."""

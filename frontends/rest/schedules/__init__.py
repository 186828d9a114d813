"""Schedules of a queue over HTTP."""

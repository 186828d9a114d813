"""Capacity reports from the journal, with Spark. Knows the journal's records and where Redis is; no other part of the queue."""

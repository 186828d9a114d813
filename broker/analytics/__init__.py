"""Reports from the journal, with Spark: knows its records and where Redis is, and nothing else of the queue."""

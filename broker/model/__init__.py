"""The words of the queue as frozen values: knows nothing of Redis, of XML, or of any other module of the project."""

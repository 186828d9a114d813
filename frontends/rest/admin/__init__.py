"""What administrators and owners look at and do beyond messages: requests, operations, views."""

"""Authentication, rate limits, and protection from cross-site requests. Must not know what is requested."""

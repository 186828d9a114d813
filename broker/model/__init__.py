"""The domain model: commands, results and records as frozen values. Must not know Redis, XML, or other modules of the project."""

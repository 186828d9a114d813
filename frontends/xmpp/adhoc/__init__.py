"""Ad-hoc commands (XEP-0050), by which people administer the service from any client. Must not know the core."""

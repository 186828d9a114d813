"""A report's figures as files and on a console. Must not know how they were got."""

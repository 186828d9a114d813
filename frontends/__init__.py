"""The doors, the command line, and the composition of both with the core. Knows wire protocols; must not know Redis."""

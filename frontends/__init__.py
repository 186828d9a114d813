"""The doors and what joins them to the core: knows wires, never Redis."""

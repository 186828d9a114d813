"""How much a service of several processes can carry: measured costs and a model. Must not know Redis, doors or reports."""

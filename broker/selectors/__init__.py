"""Selectors: the SQL subset by which a subscription chooses items. Must not know Redis or doors."""

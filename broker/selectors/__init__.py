"""Selectors: the SQL subset by which a subscription chooses items. Knows texts and their trees; must not know Redis or doors."""

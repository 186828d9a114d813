"""Nodes: their options, owners, subscriptions, schedules and place in the tree. Values and pure rules."""

"""The commands of the app, each a module."""

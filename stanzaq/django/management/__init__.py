"""The commands of the app."""

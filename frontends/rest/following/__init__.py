"""Acknowledgements of messages together with publishes over HTTP."""

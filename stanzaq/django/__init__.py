"""Django: a backend of its Tasks framework, and a command that runs the tasks. `"stanzaq.django"` in INSTALLED_APPS."""

from stanzaq.django.backend import StanzaqBackend

__all__ = ["StanzaqBackend"]

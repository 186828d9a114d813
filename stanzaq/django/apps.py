"""The app that brings the command. Must not know what it runs."""

from django.apps import AppConfig


class StanzaqConfig(AppConfig):  # type: ignore[misc]  # Django has no types
    """The app, which has no models."""

    name = "stanzaq.django"
    label = "stanzaq"

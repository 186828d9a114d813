"""Pull subscriptions and the messages they hold: requests, handlers, events."""

"""Loads over XMPP, HTTP and AMQP, and minimal clients that send them."""

"""What workers and publishers ask of a transport, and what both transports share. Must not know XMPP or HTTP."""

"""Who is connected at a door: passwords, tokens, failed logins, and names of connections that nobody takes from others."""

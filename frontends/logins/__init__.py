"""Who is connected at a door: passwords, failed logins, and names of connections that nobody takes from others."""

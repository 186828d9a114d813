"""The core over Redis: commands in, scripts run, results out. Knows Redis; must not know any door or protocol."""

"""The core over Redis: commands in, operations run, results out. Knows Redis; must not know any door or protocol."""

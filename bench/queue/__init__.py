"""The queue itself, without a door: its speed, its turns, and how long one operation may take."""

"""What is no door: servers that are started for a time, the demonstration, the measurements."""

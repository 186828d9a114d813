"""What a frontend does by itself: heartbeats, sweeps, taking over from the dead."""

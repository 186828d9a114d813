"""The worker: functions for nodes, runs of jobs with their locks, and how a worker ends."""

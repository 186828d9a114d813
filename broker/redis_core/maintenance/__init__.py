"""Background work of a frontend: heartbeats, sweeps and takeovers from dead frontends."""

"""Programs that are not doors: private servers, the demonstration, the benchmarks."""

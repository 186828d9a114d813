"""Items on their way between nodes and doors: dead letters, moves, exactly-once, and what administrators look at."""

"""Items on their way between nodes and to doors: dead letters, moves, exactly-once messages, and their inspection."""

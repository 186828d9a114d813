"""Items: what a publisher asks for, what a worker gets, and how they end. Values only."""

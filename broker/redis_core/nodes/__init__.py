"""What is done to a node as a whole, and to the tree of nodes."""

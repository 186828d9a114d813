"""Operations on whole nodes and on the tree of nodes."""

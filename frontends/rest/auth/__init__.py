"""Who asks, by which proof, how often, and from which page. Must not know what is asked."""

"""`stanzaq top` and `stanzaq journal tail`: what they show, and how they look again."""

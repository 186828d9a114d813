"""Commands that the core gives itself, and how they turn out. Values only; no door can submit them."""

"""A larger service: how its costs grow, next to the model of docs/scaling.md."""

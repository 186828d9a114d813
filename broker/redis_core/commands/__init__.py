"""The core's internal commands and their outcomes. Values only; no door can submit them."""

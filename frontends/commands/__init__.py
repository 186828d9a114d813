"""The commands of the shell about a queue: a module for each of `node`, `item`, `frontend`, `doctor` and `report`."""

"""The administrative commands of `stanzaq`: one module for each of `node`, `item`, `frontend`, `doctor` and `report`."""

"""Commands on whole nodes and stores: export, import, restore and apply."""

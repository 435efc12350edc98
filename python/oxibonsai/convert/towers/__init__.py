"""The recipes of vision towers: one small file a family."""

"""The converters of vision towers: one small file a family."""

"""Towers, one file a family."""

"""Passes that several families share: functions over the values of a graph."""

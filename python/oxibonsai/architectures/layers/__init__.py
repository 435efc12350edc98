"""What the passes of several families share: functions over the values of a graph."""

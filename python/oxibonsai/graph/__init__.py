"""What a model page is written in: a builder of graphs."""

from oxibonsai.graph.builder import Builder, Value, Vector

__all__ = ["Builder", "Value", "Vector"]

"""What a model page is written in: a builder of graphs."""

from oxibonsai.graph.builder import Builder, Routing, Value, Vector
from oxibonsai.graph.hadamard import HadamardFold
from oxibonsai.graph.rope import RopeConfig

__all__ = ["Builder", "HadamardFold", "RopeConfig", "Routing", "Value", "Vector"]

"""The builder of graphs, in which a model's pass is written."""

from oxibonsai.graph.builder import Builder, Routing
from oxibonsai.graph.hadamard import HadamardRotation
from oxibonsai.graph.key_pattern import KeyPattern
from oxibonsai.graph.op_methods import Value, Vector
from oxibonsai.graph.rope import AxialRope, RopeConfig, Rotation, section_axes

__all__ = [
    "AxialRope",
    "Builder",
    "HadamardRotation",
    "KeyPattern",
    "RopeConfig",
    "Rotation",
    "Routing",
    "Value",
    "Vector",
    "section_axes",
]

"""One model over several processes, on one machine or many, with the bytes of one process.

Tensor parallelism splits the rows of every matrix over processes, pipeline parallelism the layers.
``torchrun ... -m oxibonsai.distributed serve`` starts it (docs/scale.md). It needs torch, and nothing
else of the package imports it.
"""

from oxibonsai.distributed.device import RankPlan
from oxibonsai.distributed.follower import follow
from oxibonsai.distributed.group import Group, Link, join
from oxibonsai.distributed.layout import Layout
from oxibonsai.distributed.session import Identity, verify

__all__ = [
    "Group",
    "Identity",
    "Layout",
    "Link",
    "RankPlan",
    "follow",
    "join",
    "verify",
]

"""Which part of a model each process has."""

from __future__ import annotations

from dataclasses import dataclass

from oxibonsai.errors import RequestError


@dataclass(frozen=True)
class Layout:
    """Tensor-parallel groups of neighbouring ranks, each of which runs one stage of the layers.

    Attributes:
        tensor: Processes that share the rows of every matrix.
        pipeline: Stages, each with some of the layers, one after the other.
        rank: This process; 0 talks to users.
    """

    tensor: int
    pipeline: int
    rank: int

    def __post_init__(self) -> None:
        if self.tensor < 1 or self.pipeline < 1:
            raise RequestError("tensor and pipeline parallelism are at least 1")
        if not 0 <= self.rank < self.world:
            raise RequestError(f"rank {self.rank} is none of {self.world}")

    @property
    def world(self) -> int:
        """All processes."""
        return self.tensor * self.pipeline

    @property
    def stage(self) -> int:
        """The stage that this process runs with others of its tensor-parallel group."""
        return self.rank // self.tensor

    @property
    def row_share(self) -> int:
        """Which of the shares of rows this process has."""
        return self.rank % self.tensor

    @property
    def is_last_stage(self) -> bool:
        """Whether the model's results come from this stage."""
        return self.stage == self.pipeline - 1

    @property
    def previous(self) -> int:
        """The rank that sends hidden rows to this one; only behind the first stage."""
        return self.rank - self.tensor

    @property
    def next(self) -> int:
        """The rank that this one sends hidden rows to; only before the last stage."""
        return self.rank + self.tensor

    @property
    def results_from(self) -> int:
        """The rank that sends results to rank 0, where there are several stages."""
        return (self.pipeline - 1) * self.tensor

    def tensor_group(self, stage: int) -> list[int]:
        """Return the ranks that run a stage."""
        return list(range(stage * self.tensor, (stage + 1) * self.tensor))

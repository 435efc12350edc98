"""The protocol of constraints on a sequence's tokens."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
import numpy.typing as npt


class TokenConstraint(Protocol):
    """Says, token by token, how one text may go on; one thread at a time uses it.

    A structured output, a limit on reasoning and any combination of such rules looks like this to
    the engine, which knows nothing else of them.
    """

    def mask(self) -> npt.NDArray[np.uint32] | None:
        """Tokens that may come next, uint32 [ceil(vocab / 32)], a bit each; None: all."""
        ...

    def banned(self) -> frozenset[int]:
        """Tokens that may not come next even if the mask has them."""
        ...

    def forced(self) -> list[int]:
        """Tokens that come next whatever the model says, in this order."""
        ...

    def accept(self, token: int) -> None:
        """Move on by a generated token that does not end the text."""
        ...

    @property
    def decides_end(self) -> bool:
        """Whether it says where the text ends.

        End-of-text tokens then count even if the parameters ignore them, and a text that was cut
        is incomplete.
        """
        ...

    @property
    def may_end(self) -> bool:
        """Whether the text so far may be the whole."""
        ...

    @property
    def finished(self) -> bool:
        """Whether nothing but the end of the text may follow."""
        ...

    def fork(self) -> TokenConstraint:
        """Return a second text that goes on from here on its own."""
        ...


# Makes the constraint of a new sequence around that of its structure, if it has one.
Constrain = Callable[[TokenConstraint | None], TokenConstraint]

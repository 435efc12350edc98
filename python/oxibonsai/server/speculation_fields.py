"""Fields of a request about speculation, under llama-server's names."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from pydantic import ConfigDict, Field

from oxibonsai.errors import RequestError
from oxibonsai.server.schemas.fields import Checked

if TYPE_CHECKING:
    from oxibonsai.engine.sequence import Speculate
    from oxibonsai.engine.speculation import MakeSpeculator


class SpeculationFields(Checked):
    """How a request is drafted, where the server drafts; its text does not depend on it."""

    model_config = ConfigDict(extra="ignore", strict=True, allow_inf_nan=False)

    draft_length: int | None = Field(
        None,
        ge=0,
        le=64,
        alias="speculative.n_max",
        description="Tokens of a draft; 0: no drafts.",
    )
    draft_threshold: float | None = Field(
        None,
        ge=0,
        le=1,
        alias="speculative.p_min",
        description="A draft ends at the first token with a lower probability than this.",
    )

    def speculate(self, make: MakeSpeculator | None) -> Speculate | None:
        """Return the speculator of this request; None for that of all requests.

        Args:
            make: That of the server; None if it has none.

        Raises:
            RequestError: The request wants drafts, and the server makes none.
        """
        if self.draft_length == 0:
            return _nothing
        if self.draft_length is None and self.draft_threshold is None:
            return None
        if make is None:
            raise RequestError(
                "speculative.n_max and speculative.p_min need a server with --speculate or "
                "--draft-model: leave them out"
            )
        return partial(make, length=self.draft_length, threshold=self.draft_threshold)


def _nothing() -> None:
    """Proposes no tokens."""

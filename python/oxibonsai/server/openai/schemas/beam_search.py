"""The fields of beam search, as vLLM spells them."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import ConfigDict, Field

from oxibonsai.errors import RequestError
from oxibonsai.server.beam_search import MOST_BEAMS, BeamSearch
from oxibonsai.server.openai.schemas.structure import StructureFields
from oxibonsai.server.sampling_fields import SamplingFields
from oxibonsai.server.schemas.fields import Checked

# What beams take of the fields of sampling: the rest would choose tokens in another way.
_TAKEN = {"temperature", "seed", "stop_token_ids", "ignore_eos"}
_OTHERS = (
    "stream",
    "logprobs",
    "top_logprobs",
    "echo",
    "prompt_logprobs",
    "suffix",
    "timings_per_token",
    "return_progress",
    "tools",
    "lora",
    "store",
)
# Neutral values of parameters that are not neutral at 0.
_NEUTRAL = {"top_k": -1, "top_p": 1.0, "typ_p": 1.0, "typical_p": 1.0, "repeat_penalty": 1.0}


class BeamFields(Checked):
    """Search for the most likely texts in place of sampling."""

    model_config = ConfigDict(extra="ignore", strict=True, allow_inf_nan=False)

    use_beam_search: bool | None = Field(
        None, description="vLLM's: search for the most likely texts; temperature is 0 or left out."
    )
    best_of: int | None = Field(
        None,
        ge=1,
        le=128,
        description="Samples of which the n best are returned; with use_beam_search, its width.",
    )
    length_penalty: float | None = Field(
        None, ge=-32, le=32, description="Of beam search: the exponent of a text's length."
    )
    early_stopping: bool | Literal["never"] | None = Field(
        None, description="Of beam search: true ends it with as many finished texts as beams."
    )

    def check_best_of(self, n: int) -> None:
        """Raise RequestError where fewer choices are made than returned."""
        if self.best_of is not None and self.best_of < n:
            raise RequestError(
                f"best_of is {self.best_of}, less than n, which is {n}", param="best_of"
            )

    def beam_search(self, n: int, limit: int | None) -> BeamSearch | None:
        """Return the search that is asked for; None: texts are sampled.

        Args:
            n: Choices to return.
            limit: New tokens; None or -1: until the context is full.

        Raises:
            RequestError: Fields contradict each other.
        """
        if not self.use_beam_search:
            for name, neutral in (("length_penalty", 1.0), ("early_stopping", False)):
                if getattr(self, name) not in (None, neutral):
                    raise RequestError(
                        f"{name} is for beam search: send use_beam_search, too", param=name
                    )
            return None
        self.check_best_of(n)
        width = max(n, self.best_of or 1)
        if width > MOST_BEAMS:
            raise RequestError(
                f"use_beam_search takes {MOST_BEAMS} beams at most (n, best_of), not {width}",
                param="best_of",
            )
        if getattr(self, "temperature", None):
            raise RequestError(
                "use_beam_search samples nothing: send temperature 0 or leave it out",
                param="temperature",
            )
        for name in (*SamplingFields.model_fields, *StructureFields.model_fields, *_OTHERS):
            value: Any = getattr(self, name, None)
            if name not in _TAKEN and value and value != _NEUTRAL.get(name):
                raise RequestError(
                    f"{name} can't be combined with use_beam_search: leave it out", param=name
                )
        return BeamSearch(
            width=width,
            n=n,
            limit=None if limit in (None, -1) else limit,
            length_penalty=1.0 if self.length_penalty is None else self.length_penalty,
            early_stopping=self.early_stopping or False,
            stop_token_ids=tuple(getattr(self, "stop_token_ids", None) or ()),
            ignore_eos=bool(getattr(self, "ignore_eos", None)),
        )

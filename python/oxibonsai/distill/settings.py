"""Settings of distillation: the types of the weights, what is learnt, and how."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from oxibonsai.errors import RequestError
from oxibonsai.finetune.settings import LearningSettings

# Distances of hidden states, by their names in torch.nn.functional.
HIDDEN_LOSSES = ("mse_loss", "l1_loss", "huber_loss", "smooth_l1_loss")
MUON = "muon"


@dataclass(frozen=True)
class DistillSettings(LearningSettings):
    """How a model learns to have other weights.

    Attributes:
        weight_type: Of the matrices, a type or a mix of ``oxibonsai quantize``.
        pure: That type for all matrices, also where the mix has others.
        token_embedding_type: Of the embeddings; empty: the mix's.
        output_tensor_type: Of the matrix that gives logits; empty: the mix's.
        kl: Weight in the loss of KL(teacher || student), nats a token.
        temperature: Divides both models' logits in it.
        top_k: Compute so many of the teacher's logits a token once, before the first update; 0: all of
            them, at each update.
        cross_entropy: Weight of the cross-entropy of the examples, nats a token.
        label_smoothing: Share of its targets that is spread over all tokens.
        hidden: Weight of the distance of the hidden states.
        hidden_loss: That distance, by its name in ``torch.nn.functional``.
        optimizer: By transformers' name, or ``muon``: torch's Muon for the layers' matrices, and AdamW
            for the rest.
        optimizer_options: Transformers' ``optim_args``: ``beta2=0.95,eps=1e-8``.
        schedule: Of the learning rate, by transformers' name, or that of a class of
            ``torch.optim.lr_scheduler``.
        schedule_options: Of the schedule, as a JSON object.
    """

    weight_type: str = "q2_0_g64"
    pure: bool = False
    token_embedding_type: str = ""
    output_tensor_type: str = ""
    kl: float = 1.0
    temperature: float = 1.0
    top_k: int = 0
    cross_entropy: float = 0.0
    label_smoothing: float = 0.0
    hidden: float = 0.0
    hidden_loss: str = "mse_loss"
    optimizer: str = "adamw_torch"
    optimizer_options: str = ""
    schedule_options: str = ""
    batch: int = 4
    accumulate: int = 1
    context: int = 256

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("kl", "top_k", "cross_entropy", "hidden"):
            self.check_least(name, 0)
        self.check_positive("temperature")
        if not 0 <= self.label_smoothing < 1:
            raise RequestError(
                f"label_smoothing is {self.label_smoothing}; it is at least 0 and below 1"
            )
        if self.hidden_loss not in HIDDEN_LOSSES:
            raise RequestError(
                f"hidden_loss is {self.hidden_loss!r}; it is one of {', '.join(HIDDEN_LOSSES)}"
            )
        if not (self.kl or self.cross_entropy or self.hidden):
            raise RequestError("kl, cross_entropy and hidden are all 0: nothing would be learnt")
        if self.top_k and (self.hidden or not self.kl):
            raise RequestError(
                "top_k stores the teacher's logits, of which kl is computed, and no hidden states: "
                "set kl above 0, and hidden to 0"
            )
        self._check_used()
        self.schedule_arguments()

    def _check_used(self) -> None:
        """Refuse what the other settings make meaningless."""
        if self.optimizer == MUON and self.optimizer_options:
            raise RequestError("optimizer_options are of transformers' optimizers: muon takes none")
        if self.label_smoothing and not self.cross_entropy:
            raise RequestError("label_smoothing is of the cross-entropy: set cross_entropy above 0")
        if self.temperature != 1 and not self.kl:
            raise RequestError("temperature is of kl, which is 0")
        if self.hidden_loss != HIDDEN_LOSSES[0] and not self.hidden:
            raise RequestError("hidden_loss is of the hidden states: set hidden above 0")

    def schedule_arguments(self) -> dict[str, Any]:
        """Return the schedule's options.

        Raises:
            RequestError: They are no JSON object.
        """
        try:
            options = json.loads(self.schedule_options or "{}")
        except ValueError:
            options = None
        if not isinstance(options, dict):
            raise RequestError(
                f"schedule_options is {self.schedule_options!r}; it is a JSON object: "
                '{"num_decay_steps": 100}'
            )
        return options

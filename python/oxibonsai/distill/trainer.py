"""transformers' Trainer for a student whose weights are rounded wherever it computes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
import transformers
from torch.func import functional_call

from oxibonsai.distill.objective import Seen, Stored, loss
from oxibonsai.distill.optimization import MuonAndAdamW, torch_schedule
from oxibonsai.distill.rounding import Rounding
from oxibonsai.distill.settings import MUON, DistillSettings
from oxibonsai.errors import OxiBonsaiError, RequestError
from oxibonsai.finetune.examples import IGNORED

Batch = Mapping[str, Any]


class DistillTrainer(transformers.Trainer):
    """Learns the latent weights: those of which the file holds the rounded ones.

    Args:
        student: The model of latent weights.
        teacher: The model that it learns from.
        rounding: What the student computes with.
        settings: What is learnt, and how.
        arguments: transformers' own.
        **more: As of ``transformers.Trainer``.
    """

    loss_is_scaled_for_ga = True

    def __init__(
        self,
        student: Any,
        teacher: Any,
        rounding: Rounding,
        settings: DistillSettings,
        arguments: Any,
        **more: Any,
    ) -> None:
        super().__init__(student, arguments, **more)
        # Then the Trainer says how many tokens an update learns.
        self.model_accepts_loss_kwargs = True
        self._teacher = teacher.to(arguments.device)
        self._student, self._rounding, self._settings = student, rounding, settings

    def compute_loss(
        self,
        model: Any,
        inputs: Any,
        return_outputs: bool = False,
        num_items_in_batch: Any = None,
    ) -> Any:
        """Return the loss of a batch, for each token of the whole update."""
        weights = self._rounding.straight_through(model)
        found = loss(
            self._see(lambda **given: functional_call(model, weights, (), given), inputs),
            self._taught(inputs),
            _targets(inputs),
            self._settings,
        )
        if not torch.isfinite(found):
            raise OxiBonsaiError(
                f"the loss is {float(found)} at update {self.state.global_step + 1}: lower the "
                "learning rate"
            )
        return found / num_items_in_batch

    def _taught(self, inputs: Batch) -> Seen | Stored | None:
        """Return what the teacher makes of a batch, at the tokens that are learnt."""
        if "taught_ids" in inputs:
            return Stored(inputs["taught_ids"], inputs["taught_log_probabilities"])
        if not (self._settings.kl or self._settings.hidden):
            return None
        return self._see_as_teacher(inputs)

    def teach(self, batch: dict[str, torch.Tensor]) -> Stored:
        """Return the teacher's likeliest tokens where one is learnt."""
        settings = self._settings
        seen = self._see_as_teacher(self._prepare_inputs(batch))
        logits = (seen.logits / settings.temperature).log_softmax(dim=-1)
        found = logits.topk(settings.top_k)
        return Stored(found.indices, found.values)

    def _see_as_teacher(self, inputs: Batch) -> Seen:
        """Return what the teacher makes of a batch, with no gradient."""
        half = self._settings.dtype == "bfloat16"
        with (
            torch.no_grad(),
            torch.autocast(self.args.device.type, torch.bfloat16, enabled=half),
        ):
            return self._see(self._teacher, inputs)

    def _see(self, forward: Callable[..., Any], inputs: Batch) -> Seen:
        compared = bool(self._settings.hidden)
        found = forward(
            input_ids=inputs["input_ids"],
            attention_mask=inputs["attention_mask"],
            use_cache=False,
            output_hidden_states=compared,
        )
        learnt = _learnt(inputs)
        hidden = [h[:, :-1][learnt].float() for h in found.hidden_states] if compared else []
        return Seen(found.logits[:, :-1][learnt].float(), hidden)

    def evaluate(self, *args: Any, **more: Any) -> dict[str, float]:
        """Measure the held-out examples, and log it."""
        model = self._student
        model.eval()
        with torch.no_grad():
            weights = self._rounding.values(model)
            found = self.cross_entropy(lambda **given: functional_call(model, weights, (), given))
        self.log({"eval_loss": found})
        return {"eval_loss": found}

    def teacher_cross_entropy(self) -> float:
        """Return the teacher's on the held-out examples, nats a token."""
        with torch.no_grad():
            return self.cross_entropy(self._teacher)

    def cross_entropy(self, forward: Callable[..., Any]) -> float:
        """Return a model's cross-entropy on the held-out examples, nats a token."""
        total, count = 0.0, 0
        for batch in self.get_eval_dataloader():
            inputs: Batch = self._prepare_inputs(batch)
            seen, targets = self._see(forward, inputs), _targets(inputs)
            total += float(torch.nn.functional.cross_entropy(seen.logits, targets, reduction="sum"))
            count += len(targets)
        return total / count

    def create_optimizer(self, model: Any = None) -> Any:
        """Make the optimizer: transformers', or Muon."""
        if self._settings.optimizer != MUON or self.optimizer is not None:
            return super().create_optimizer(model)
        student = self._student
        tables = {student.get_input_embeddings(), student.get_output_embeddings()}
        kept = {id(module.weight) for module in tables if module is not None}
        decaying = set(self.get_decay_parameter_names(student))
        matrices: list[torch.Tensor] = []
        others: list[torch.Tensor] = []
        vectors: list[torch.Tensor] = []
        for name, parameter in student.named_parameters():
            if parameter.ndim == 2 and id(parameter) not in kept:
                matrices.append(parameter)
            else:
                (others if name in decaying else vectors).append(parameter)
        rate, decay = self._settings.learning_rate, self._settings.weight_decay
        self.optimizer = MuonAndAdamW(matrices, others, vectors, rate, decay)
        return self.optimizer

    def create_scheduler(self, num_training_steps: int, optimizer: Any = None) -> Any:
        """Make the schedule: transformers', or one of torch's classes."""
        settings = self._settings
        schedule = torch_schedule(settings.schedule)
        try:
            if schedule is None or self.lr_scheduler is not None:
                return super().create_scheduler(num_training_steps, optimizer)
            options = settings.schedule_arguments()
            if settings.schedule == "OneCycleLR":
                length = {"max_lr": settings.learning_rate, "total_steps": num_training_steps}
                options = length | options
            self.lr_scheduler = schedule(optimizer or self.optimizer, **options)
            self._created_lr_scheduler = True
        except (TypeError, ValueError) as e:
            raise RequestError(f"the schedule {settings.schedule} can't be made: {e}") from e
        return self.lr_scheduler


def perplexity(cross_entropy: float) -> float:
    """Return the perplexity of a cross-entropy in nats a token."""
    return math.exp(min(cross_entropy, 700.0))


def _learnt(inputs: Batch) -> torch.Tensor:
    """Return at which tokens but the last the next one is learnt, [batch, tokens - 1]."""
    learnt: torch.Tensor = inputs["labels"][:, 1:] != IGNORED
    return learnt


def _targets(inputs: Batch) -> torch.Tensor:
    """Return the tokens that are learnt."""
    targets: torch.Tensor = inputs["labels"][:, 1:][_learnt(inputs)]
    return targets

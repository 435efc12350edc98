"""A classifier as a ``transformers.PreTrainedModel``, for pipelines.

Only imported for callers who have torch and transformers.
"""

# transformers' own signatures are narrower than what it calls them with.
# mypy: disable-error-code="misc,override,no-untyped-call"

from __future__ import annotations

from typing import Any

import torch
from transformers.modeling_outputs import SequenceClassifierOutput
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES,
)

from oxibonsai.hf.transformers_base import EngineModel

# Pipelines look up the names of classes.
MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES["oxibonsai"] = "OxiBonsaiForSequenceClassification"


class OxiBonsaiForSequenceClassification(EngineModel):
    """A classifier that transformers and its pipelines take for one of theirs.

    Args:
        classifier: A :class:`oxibonsai.hf.SequenceClassifier`, which scores the texts.
    """

    def __init__(self, classifier: Any) -> None:
        super().__init__(classifier.config)
        self.classifier = classifier

    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
        return_dict: bool | None = None,
        **others: Any,
    ) -> Any:
        """Return the scores of each text; see :meth:`oxibonsai.hf.SequenceClassifier.__call__`."""
        found = self.classifier(input_ids, attention_mask, token_type_ids, labels=labels, **others)
        output = SequenceClassifierOutput(loss=found.loss, logits=found.logits)
        return output.to_tuple() if return_dict is False else output

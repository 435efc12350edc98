"""Settings of finetuning: the adapter's shape, and how it learns."""

from __future__ import annotations

from dataclasses import dataclass

from oxibonsai.errors import RequestError


@dataclass(frozen=True)
class FinetuneSettings:
    """How an adapter is shaped and trained; most are ``peft.LoraConfig``'s and ``TrainingArguments``'.

    Attributes:
        rank: Of the adapter's matrices.
        alpha: The product of the two is scaled by ``alpha / rank``; with ``rslora`` by its root.
        dropout: Share of an adapter's inputs that a step leaves out.
        rslora: Scale by ``alpha / sqrt(rank)``.
        target_modules: Which linear layers are adapted: ``"all-linear"``, or names as transformers has
            them, with commas: ``"q_proj,v_proj"``.
        epochs: How often the data is read, unless ``steps`` says more exactly.
        steps: Updates; 0: as many as ``epochs`` take.
        batch: Examples that are computed at once.
        accumulate: Batches of an update.
        context: Tokens of an example at most; what is longer is cut.
        learning_rate: At its height.
        schedule: Of the learning rate, by transformers' name: ``linear``, ``cosine``, ``constant`` ...
        warmup: Updates of the rise to the learning rate.
        weight_decay: Of the adapter's matrices.
        clip: Largest norm of the gradient.
        dtype: Of what is computed: ``float32`` or ``bfloat16``.
        checkpointing: Keep fewer values of the forward pass, and compute them again for the backward.
        seed: Of the adapter's first values and the order of the data.
        save_every: Updates to a checkpoint, which is also when held-out examples are measured.
        keep: Checkpoints that are kept, the newest ones.
        report_to: Where else transformers sends the figures, with commas: ``tensorboard,wandb``.
    """

    rank: int = 16
    alpha: int = 32
    dropout: float = 0.0
    rslora: bool = False
    target_modules: str = "all-linear"
    epochs: float = 1.0
    steps: int = 0
    batch: int = 1
    accumulate: int = 8
    context: int = 1024
    learning_rate: float = 2e-4
    schedule: str = "cosine"
    warmup: int = 0
    weight_decay: float = 0.0
    clip: float = 1.0
    dtype: str = "float32"
    checkpointing: bool = False
    seed: int = 0
    save_every: int = 100
    keep: int = 2
    report_to: str = "none"

    def __post_init__(self) -> None:
        for name in ("rank", "alpha", "batch", "accumulate", "save_every", "keep"):
            self._check(name, 1)
        self._check("context", 2)
        for name in ("steps", "warmup", "seed", "weight_decay"):
            self._check(name, 0)
        for name in ("epochs", "learning_rate", "clip"):
            if not 0 < getattr(self, name) < float("inf"):
                raise RequestError(f"{name} is {getattr(self, name)}; it must be a number above 0")
        if not 0 <= self.dropout < 1:
            raise RequestError(f"dropout is {self.dropout}; it is at least 0 and below 1")

    def _check(self, name: str, least: int) -> None:
        if not getattr(self, name) >= least:
            raise RequestError(f"{name} is {getattr(self, name)}; it is at least {least}")

    def names(self, field: str) -> list[str]:
        """Return the names that a field holds, which stand with commas between them."""
        return [name for part in getattr(self, field).split(",") if (name := part.strip())]

"""Settings of training with transformers' Trainer, and of adapters."""

from __future__ import annotations

from dataclasses import dataclass

from oxibonsai.errors import RequestError


@dataclass(frozen=True)
class LearningSettings:
    """How a model learns from examples; most are ``transformers.TrainingArguments``'.

    Attributes:
        epochs: How often the data is read, unless ``steps`` says more exactly.
        steps: Updates; 0: as many as ``epochs`` take.
        batch: Examples that are computed at once.
        accumulate: Batches of an update.
        context: Tokens of an example at most.
        learning_rate: At its height.
        schedule: Of the learning rate, by transformers' name: ``linear``, ``cosine``, ``constant`` ...
        warmup: Updates of the rise to the learning rate.
        weight_decay: Of matrices.
        clip: Largest norm of the gradient.
        dtype: Of what is computed: ``float32`` or ``bfloat16``.
        seed: Of first values and the order of the data.
        save_every: Updates to a checkpoint, which is also when held-out examples are measured.
        keep: Checkpoints that are kept, the newest ones.
        report_to: Where else transformers sends the figures, with commas: ``tensorboard,wandb``.
    """

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
    seed: int = 0
    save_every: int = 100
    keep: int = 2
    report_to: str = "none"

    def __post_init__(self) -> None:
        for name in ("batch", "accumulate", "save_every", "keep"):
            self.check_least(name, 1)
        self.check_least("context", 2)
        for name in ("steps", "warmup", "seed", "weight_decay"):
            self.check_least(name, 0)
        for name in ("epochs", "learning_rate", "clip"):
            self.check_positive(name)

    def check_least(self, name: str, least: int) -> None:
        """Raise RequestError if a field is below its least value."""
        if not getattr(self, name) >= least:
            raise RequestError(f"{name} is {getattr(self, name)}; it is at least {least}")

    def check_positive(self, name: str) -> None:
        """Raise RequestError if a field is no finite number above zero."""
        if not 0 < getattr(self, name) < float("inf"):
            raise RequestError(f"{name} is {getattr(self, name)}; it must be a number above 0")

    def names(self, field: str) -> list[str]:
        """Return the names that a field holds, which stand with commas between them."""
        return [name for part in getattr(self, field).split(",") if (name := part.strip())]


@dataclass(frozen=True)
class FinetuneSettings(LearningSettings):
    """How an adapter is shaped and trained; what is of the adapter is ``peft.LoraConfig``'s.

    Attributes:
        rank: Of the adapter's matrices.
        alpha: The product of the two is scaled by ``alpha / rank``; with ``use_rslora`` by its root.
        dropout: Share of an adapter's inputs that a step leaves out.
        use_rslora: Scale by ``alpha / sqrt(rank)``.
        use_dora: Learn the norms of the weights' rows besides (DoRA), which PEFT alone can run.
        target_modules: Which linear layers are adapted: ``"all-linear"``, or names as transformers has
            them, with commas: ``"q_proj,v_proj"``.
        checkpointing: Keep fewer values of the forward pass, and compute them again for the backward.
        packing: Compute several examples one after the other in a row of ``context`` tokens, of which
            none sees another.
        beta: How much the distance from the model costs that preferences are learnt by (DPO).
        gguf: Write the adapter as a GGUF file, too.
    """

    rank: int = 16
    alpha: int = 32
    dropout: float = 0.0
    use_rslora: bool = False
    use_dora: bool = False
    target_modules: str = "all-linear"
    checkpointing: bool = False
    packing: bool = False
    beta: float = 0.1
    gguf: bool = False

    def __post_init__(self) -> None:
        if self.use_dora and self.gguf:
            raise RequestError("use_dora and gguf do not go together: GGUF files have no DoRA")
        for name in ("rank", "alpha"):
            self.check_least(name, 1)
        super().__post_init__()
        self.check_positive("beta")
        if not 0 <= self.dropout < 1:
            raise RequestError(f"dropout is {self.dropout}; it is at least 0 and below 1")

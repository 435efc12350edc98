"""Settings of a training run: the network's shape and how it learns."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal, get_args, get_origin, get_type_hints

from oxibonsai.errors import RequestError


@dataclass(frozen=True)
class WeightFormat:
    """Values that weights may have.

    Attributes:
        group: Weights of a row that share a scale.
        ternary: Whether a weight may be zero beside plus and minus the scale.
    """

    group: int
    ternary: bool


# By the types of oxibonsai.convert, which write exactly these values; None trains floats.
FORMATS: dict[str, WeightFormat | None] = {
    "float": None,
    "q1_0": WeightFormat(128, ternary=False),
    "q2_0_g64": WeightFormat(64, ternary=True),
    "pq2_0": WeightFormat(128, ternary=True),
}


@dataclass(frozen=True)
class NetworkShape:
    """Sizes of a Qwen3 network; the vocabulary's comes from the tokenizer.

    Attributes:
        hidden_size: Width of the residual stream.
        layers: Their number.
        heads: Of queries.
        kv_heads: Of keys and values; divides ``heads``.
        head_dim: Width of a head; even.
        ffn_size: Width inside the feed-forward part.
    """

    hidden_size: int = 256
    layers: int = 4
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 64
    ffn_size: int = 512

    def check(self, weight_format: str) -> None:
        """Refuse what makes no network, or none of that format.

        Raises:
            RequestError: Names the size and what it has to be.
        """
        for field in fields(self):
            if getattr(self, field.name) < 1:
                raise RequestError(f"{field.name} is {getattr(self, field.name)}; it is at least 1")
        if self.heads % self.kv_heads:
            raise RequestError(
                f"heads is {self.heads}, which kv_heads ({self.kv_heads}) does not divide"
            )
        if self.head_dim % 2:
            raise RequestError(f"head_dim is {self.head_dim}; rotary positions need an even one")
        kind = FORMATS[weight_format]
        widths = {
            "hidden_size": self.hidden_size,
            "ffn_size": self.ffn_size,
            "heads x head_dim": self.heads * self.head_dim,
        }
        for name, width in widths.items():
            if kind is not None and width % kind.group:
                raise RequestError(
                    f"{name} is {width}; {weight_format} needs a multiple of its group of {kind.group}"
                )


@dataclass(frozen=True)
class TrainSettings:
    """How a network learns.

    Attributes:
        weight_format: One of ``FORMATS``.
        steps: Updates of the weights.
        batch: Sequences of an update.
        accumulate: Parts that a batch is computed in, one after the other; divides it.
        context: Tokens of a sequence.
        optimizer: ``"adamw"`` for all, or ``"muon"`` for the matrices of the layers.
        learning_rate: Of AdamW, at its height.
        muon_learning_rate: Of Muon, at its height.
        weight_decay: Of matrices.
        schedule: ``"cosine"`` to a tenth, or ``"wsd"``: constant, then a straight line to zero.
        warmup: Steps of the rise to the learning rate.
        decay: Share of the steps in which ``wsd`` falls.
        clip: Largest norm of the gradient; 0 leaves it as it is.
        distill: Share of the teacher's logits in the loss, 0 to 1; without a teacher it is 0.
        temperature: Divides both networks' logits where they are compared.
        precision: ``"bfloat16"`` (autocast), ``"float32"``, or ``"auto"``: the first where the device
            computes with it.
        compile: Whether torch compiles the network; needs a C++ compiler.
        seed: Of the first weights and the order of the data.
        save_every: Steps between checkpoints.
        keep: Checkpoints that are kept, the newest ones; 0 keeps all.
    """

    weight_format: str = "q2_0_g64"
    steps: int = 1000
    batch: int = 16
    accumulate: int = 1
    context: int = 256
    optimizer: Literal["adamw", "muon"] = "muon"
    learning_rate: float = 3e-3
    muon_learning_rate: float = 0.02
    weight_decay: float = 0.1
    schedule: Literal["cosine", "wsd"] = "cosine"
    warmup: int = 50
    decay: float = 0.3
    clip: float = 1.0
    distill: float = 0.0
    temperature: float = 1.0
    precision: Literal["auto", "bfloat16", "float32"] = "auto"
    compile: bool = False
    seed: int = 0
    save_every: int = 200
    keep: int = 2

    def __post_init__(self) -> None:
        """Refuse what makes no run."""
        for name, known in settings_choices().items():
            if getattr(self, name) not in known:
                raise RequestError(
                    f"{name} is {getattr(self, name)!r}; it is one of {', '.join(known)}"
                )
        for name in ("steps", "batch", "accumulate", "save_every"):
            self._require(name, getattr(self, name) >= 1, "at least 1")
        for name in ("learning_rate", "muon_learning_rate", "temperature"):
            self._require(name, 0 < getattr(self, name) < float("inf"), "above 0")
        for name in ("weight_decay", "clip", "warmup", "keep"):
            self._require(name, 0 <= getattr(self, name) < float("inf"), "0 or more")
        for name in ("distill", "decay"):
            self._require(name, 0 <= getattr(self, name) <= 1, "from 0 to 1")
        self._require("context", self.context >= 8, "at least 8")
        self._require("seed", 0 <= self.seed < 2**63, "from 0 to 2^63 - 1")
        self._require("warmup", self.warmup < self.steps, f"less than steps ({self.steps})")
        self._require("accumulate", self.batch % self.accumulate == 0, "a divisor of batch")

    def _require(self, name: str, good: bool, what: str) -> None:
        if not good:
            raise RequestError(f"{name} is {getattr(self, name)}; it has to be {what}")

    @property
    def tokens_per_step(self) -> int:
        """Return the tokens that one update learns from."""
        return self.batch * self.context


def settings_choices() -> dict[str, tuple[str, ...]]:
    """Return the words that those settings may have that are one of a few."""
    hints = get_type_hints(TrainSettings)
    words = {name: get_args(h) for name, h in hints.items() if get_origin(h) is Literal}
    return {"weight_format": tuple(FORMATS), **words}

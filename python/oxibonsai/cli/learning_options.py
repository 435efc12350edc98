"""Help of the options that commands which train with transformers share."""

from __future__ import annotations

LEARNING = {
    "epochs": "How often the data is read.",
    "steps": "Updates; 0: as many as the epochs take.",
    "batch": "Examples at once.",
    "accumulate": "Batches of an update.",
    "context": "Tokens of an example at most.",
    "learning_rate": "At its height.",
    "schedule": "Of the learning rate: linear, cosine, constant ...",
    "warmup": "Updates of the rise.",
    "weight_decay": "Of matrices.",
    "clip": "Of the gradient's norm.",
    "dtype": "Of what is computed.",
    "seed": "Of first values and the order of the data.",
    "save_every": "Updates to a checkpoint.",
    "keep": "Checkpoints.",
    "report_to": "Where transformers sends figures: tensorboard,wandb.",
}
LEARNING_CHOICES = {"dtype": ("float32", "bfloat16")}

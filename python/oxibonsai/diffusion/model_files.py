"""Where the networks of an image model lie: a folder, a repository, one GGUF file, or parts of each."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oxibonsai.checkpoint import Checkpoint
from oxibonsai.diffusion.network import Network
from oxibonsai.diffusion.network_tensors import (
    NetworkTensors,
    network_of_folder,
    tensors_of_file,
)
from oxibonsai.diffusion.one_file import (
    ARCHITECTURE,
    ORIGINAL_ARCHITECTURES,
    TEXT_PREFIXES,
    VAE_PREFIX,
    checked_counts,
    counts,
    open_image_gguf,
    text_encoder_of,
    text_layers,
    transformer_config,
    vae_config,
)
from oxibonsai.diffusion.original_names import (
    is_original_transformer,
    is_original_vae,
    original_transformer,
    original_vae,
)
from oxibonsai.diffusion.request import SIDE
from oxibonsai.diffusion.text_encoder import LAYERS, LENGTH, check_architecture
from oxibonsai.errors import FormatError, SourceError, UnsupportedError
from oxibonsai.files.home_paths import with_home
from oxibonsai.files.json_object import read_object
from oxibonsai.loading.model import opened
from oxibonsai.sources.local import IMAGE_MODEL, resolve_packaged

# Names of a network's folder in the repositories that are known, the most usual first.
_TRANSFORMER = ("transformer", "transformer-packed-mflux")
_TEXT_ENCODER = ("text_encoder", "text_encoder-mlx-4bit")
_VAE = ("vae",)
_TOKENIZER = ("tokenizer",)
# What can only be read by running code that the file brings along.
_PICKLED = ("transformer-gemlite", "text_encoder-hqq")

_INDEX = "model_index.json"
_PIPELINES = ("Flux2KleinPipeline",)


@dataclass(frozen=True)
class ModelFiles:
    """The networks of an image model, opened and not yet packed.

    Attributes:
        name: Of the model, without a path.
        transformer, vae: Their tensors.
        text_encoder: A language model.
        text_layers: Whose hidden states the transformer reads.
        prompt_length: Tokens of a prompt with its padding.
        default_pixels: Of a side, where none is asked for.
    """

    name: str
    transformer: Network
    vae: Network
    text_encoder: Checkpoint
    text_layers: tuple[int, ...] = LAYERS
    prompt_length: int = LENGTH
    default_pixels: int = SIDE


@dataclass(frozen=True)
class PartNames:
    """Parts that replace those of the model; None: the model's own.

    Attributes:
        transformer, vae, text_encoder, tokenizer: Files or folders.
    """

    transformer: str | None = None
    vae: str | None = None
    text_encoder: str | None = None
    tokenizer: str | None = None

    @classmethod
    def from_environment(cls) -> PartNames:
        """Read ``OXI_DIT_GGUF``, ``OXI_VAE_WEIGHTS``, ``OXI_TE_4BIT`` and ``OXI_TE_TOKENIZER_DIR``."""
        names = ("OXI_DIT_GGUF", "OXI_VAE_WEIGHTS", "OXI_TE_4BIT", "OXI_TE_TOKENIZER_DIR")
        return cls(*(os.environ.get(n) or None for n in names))

    def over(self, other: PartNames) -> PartNames:
        """Return these parts, and those of ``other`` where there are none."""
        return PartNames(
            self.transformer or other.transformer,
            self.vae or other.vae,
            self.text_encoder or other.text_encoder,
            self.tokenizer or other.tokenizer,
        )


def open_image_model(source: str | os.PathLike[str] | None, parts: PartNames) -> ModelFiles:
    """Find and open all networks.

    Args:
        source: A folder as diffusers or PrismML lay it out, ``hf:org/repo``, a GGUF file that
            ``oxibonsai convert`` wrote, or ``seedling-picture``; a transformer alone, as Black Forest
            Labs, city96 and stable-diffusion.cpp write it; None where ``parts`` name everything.
        parts: What replaces the model's own.

    Raises:
        SourceError: There is no such model, or a part of it is missing; it says how to name it.
        FormatError: A file is damaged or not what its place says.
        UnsupportedError: The model is of another kind, or would have to be unpickled.
    """
    if source is None and parts.transformer is None:
        raise SourceError(
            "no picture model is named: give one with --model, a folder, a GGUF file or a repository "
            "such as hf:prism-ml/bonsai-image-ternary-4B-mlx-2bit"
        )
    place = _place(source)
    if place is not None and _is_transformer_alone(place):
        place, parts = None, parts.over(PartNames(transformer=str(place)))
    if place is not None and place.is_file():
        return _open_one_file(place, parts)
    if place is not None:
        _check_pipeline(place)
    transformer = _part(place, parts.transformer, _TRANSFORMER, "transformer")
    vae = _part(place, parts.vae, _VAE, "VAE")
    text = _part(place, parts.text_encoder, _TEXT_ENCODER, "text encoder")
    return ModelFiles(
        _name(source, transformer),
        _transformer(transformer),
        _vae(vae),
        open_text_encoder(text, _tokenizer(place, parts, text)),
        **(_settings(place) if place is not None else {}),
    )


def is_image_model(source: str) -> bool:
    """Return whether a name is that of a folder or repository of networks that draw."""
    if source.startswith("hf:"):
        from oxibonsai.sources.hub import hub_has

        return hub_has(source.removeprefix("hf:"), _INDEX)
    return (with_home(source) / _INDEX).is_file()


def _place(source: str | os.PathLike[str] | None) -> Path | None:
    if source is None:
        return None
    text = os.fspath(source)
    if text.startswith("hf:"):
        from oxibonsai.sources.hub import hub_files

        return hub_files(text.removeprefix("hf:"), _is_wanted)
    if text == IMAGE_MODEL:
        return resolve_packaged(text)
    path = with_home(text)
    if not path.exists():
        raise SourceError(
            f"{path} does not exist; name a folder with a picture model, a GGUF file or hf:org/repo"
        )
    return path


def _is_wanted(name: str) -> bool:
    """Return whether a file of a repository belongs to a network; a release in one file has them twice."""
    folder, _, file = name.rpartition("/")
    if not folder:
        return file == _INDEX
    known = {*_TRANSFORMER, *_TEXT_ENCODER, *_VAE, *_TOKENIZER, "scheduler"}
    return folder in known and file.endswith((".json", ".safetensors", ".jinja", ".txt"))


def _name(source: str | os.PathLike[str] | None, transformer: Path) -> str:
    text = os.fspath(source) if source is not None else str(transformer)
    if text.startswith("hf:"):
        return text.removeprefix("hf:").rpartition("/")[2]
    return with_home(text).resolve().stem


def _check_pipeline(folder: Path) -> None:
    index = folder / _INDEX
    if not index.is_file():
        return
    kind = read_object(index).get("_class_name")
    if kind not in _PIPELINES:
        raise UnsupportedError(
            f"{folder} holds a {kind!r}; this version draws with {', '.join(_PIPELINES)}"
        )
    scheduler = folder / "scheduler" / "scheduler_config.json"
    if scheduler.is_file():
        _check_scheduler(scheduler)


def _settings(folder: Path) -> dict[str, Any]:
    """Return fields of ModelFiles that ``model_index.json`` may name: small models have others."""
    index = folder / _INDEX
    settings = read_object(index) if index.is_file() else {}
    layers = settings.get("text_encoder_out_layers", list(LAYERS))
    if not isinstance(layers, list) or any(type(n) is not int for n in layers):
        raise FormatError(f"{index}: text_encoder_out_layers is {layers!r}, no list of layers")
    return {"text_layers": tuple(layers), **checked_counts(settings, index)}


def _check_scheduler(path: Path) -> None:
    """Check that the file asks for the one schedule that there is."""
    config = read_object(path)
    wanted = {
        "_class_name": "FlowMatchEulerDiscreteScheduler",
        "use_dynamic_shifting": True,
        "time_shift_type": "exponential",
        "num_train_timesteps": 1000,
        "invert_sigmas": False,
        "shift_terminal": None,
        "stochastic_sampling": False,
        "use_beta_sigmas": False,
        "use_exponential_sigmas": False,
        "use_karras_sigmas": False,
    }
    for key, value in wanted.items():
        if config.get(key, value) != value:
            raise UnsupportedError(f"{path}: {key} is {config[key]!r}; only {value!r} is supported")


def _part(place: Path | None, named: str | None, folders: tuple[str, ...], what: str) -> Path:
    """Return a network's folder or file."""
    if named is not None:
        path = with_home(named)
        if not path.exists():
            raise SourceError(f"the {what} {path} does not exist")
        return path
    if place is None:
        raise SourceError(f"no {what}: name a model, or the {what} by itself")
    for folder in folders:
        if (place / folder).is_dir():
            return place / folder
    for pickled in sorted(p.name for p in place.iterdir() if p.name.startswith(_PICKLED)):
        raise UnsupportedError(
            f"{place / pickled} holds pickled tensors, and opening them would run code of the file: "
            "take the repository's sibling for MLX (its name ends with -mlx-2bit or -mlx-1bit) or the "
            "unpacked one"
        )
    raise SourceError(f"{place} lacks its {what}: there is no folder {' or '.join(folders)}")


def _is_transformer_alone(path: Path) -> bool:
    """Return whether a file holds a transformer by Black Forest Labs' names and nothing else."""
    if not path.is_file():
        return False
    if path.suffix == ".safetensors":
        return True
    architecture = open_image_gguf(path).file.text("general.architecture")
    return architecture in ORIGINAL_ARCHITECTURES


def _transformer(path: Path) -> Network:
    if path.suffix == ".safetensors" and path.is_file():
        tensors = tensors_of_file(path)
        if is_original_transformer(tensors.names):
            return original_transformer(tensors)
    if path.suffix != ".gguf" or path.is_dir():
        return network_of_folder(path)
    checkpoint = open_image_gguf(path)
    architecture = checkpoint.file.text("general.architecture")
    if architecture in ORIGINAL_ARCHITECTURES:
        return original_transformer(NetworkTensors(checkpoint, complete_names=False))
    if architecture != ARCHITECTURE:
        raise UnsupportedError(
            f"{path} is of architecture {architecture}: the transformer of a picture model is one of "
            f"{ARCHITECTURE} or flux (FLUX.2 klein)"
        )
    tensors = NetworkTensors(checkpoint, others=(VAE_PREFIX, *TEXT_PREFIXES))
    return Network(transformer_config(checkpoint), tensors)


def _vae(path: Path) -> Network:
    if path.suffix == ".gguf" and path.is_file():
        raise UnsupportedError(
            f"the VAE {path} is a GGUF file: take the model's file of safetensors"
        )
    if path.suffix == ".safetensors" and path.is_file():
        tensors = tensors_of_file(path)
        if is_original_vae(tensors.names):
            return original_vae(tensors)
    return network_of_folder(path)


def open_text_encoder(path: Path, tokenizer: Path | None) -> Checkpoint:
    """Return a text encoder with its tokenizer.

    Args:
        path: A GGUF file; a folder with ``config.json`` and safetensors, or the file in such a folder.
        tokenizer: A folder with ``tokenizer.json``; None: ``path`` has one.

    Raises:
        SourceError: A GGUF file is given another tokenizer.
        FormatError, UnsupportedError: A file is damaged, or of another kind.
    """
    if path.suffix == ".gguf" and path.is_file():
        if tokenizer is not None:
            raise SourceError(f"{path} has its tokenizer inside; leave {tokenizer} away")
        checkpoint = Checkpoint(path)
        check_architecture(checkpoint)
        return checkpoint
    if path.is_file() and not (path.parent / "config.json").is_file():
        raise SourceError(
            f"the text encoder {path} has no config.json and tokenizer.json beside it: name a folder that "
            "has them, or the model's GGUF file, which holds all of it"
        )
    from oxibonsai.convert.text_encoder import plan_text_encoder

    return opened(plan_text_encoder(path, tokenizer), path)


def _tokenizer(place: Path | None, parts: PartNames, text: Path) -> Path | None:
    """Return the tokenizer's folder; None where the text encoder brings it along."""
    if parts.tokenizer is not None:
        path = with_home(parts.tokenizer)
        if not (path / "tokenizer.json").is_file():
            raise SourceError(f"{path} is no folder with a tokenizer.json")
        return path
    if text.is_file() or (text / "tokenizer.json").is_file():
        return None
    for folder in _TOKENIZER:
        if place is not None and (place / folder / "tokenizer.json").is_file():
            return place / folder
    raise SourceError(
        f"the text encoder {text} has no tokenizer.json: name the folder that holds it as tokenizer"
    )


def _open_one_file(path: Path, parts: PartNames) -> ModelFiles:
    checkpoint = open_image_gguf(path)
    if checkpoint.architecture != ARCHITECTURE:
        raise UnsupportedError(
            f"{path} holds a model of architecture {checkpoint.architecture}, which does not draw"
        )
    transformer = path
    if parts.transformer is not None:
        transformer = _part(None, parts.transformer, _TRANSFORMER, "transformer")
    if parts.vae is not None:
        vae = _vae(_part(None, parts.vae, _VAE, "VAE"))
    elif any(n.startswith(VAE_PREFIX) for n in checkpoint.tensor_names):
        vae = Network(vae_config(checkpoint), NetworkTensors(checkpoint, VAE_PREFIX))
    else:
        raise SourceError(f"{path} holds a transformer alone: name its VAE, too")
    if parts.text_encoder is not None:
        named = _part(None, parts.text_encoder, _TEXT_ENCODER, "text encoder")
        text = open_text_encoder(named, _tokenizer(None, parts, named))
    elif parts.tokenizer is not None:
        raise SourceError(f"{path} has its tokenizer inside; leave {parts.tokenizer} away")
    else:
        text = text_encoder_of(checkpoint)
    return ModelFiles(
        path.stem,
        _transformer(transformer),
        vae,
        text,
        text_layers(checkpoint) or LAYERS,
        **counts(checkpoint),
    )

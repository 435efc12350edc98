"""Merge models by a configuration of mergekit, which computes; GGUF files are decoded for it."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from oxibonsai.convert.language_model import convert
from oxibonsai.devices import default_threads
from oxibonsai.errors import FormatError, RequestError, SourceError
from oxibonsai.export import save_model
from oxibonsai.files.home_paths import with_home
from oxibonsai.files.whole_file import make_folder, make_room
from oxibonsai.loading import open_model
from oxibonsai.sources.local import PACKAGED

GGUF_SUFFIX = ".gguf"
_ELSEWHERE = ("pip:", "hf:", "https://")  # what mergekit has no names for


def merge_models(
    config: Path,
    out: Path,
    *,
    dtype: str = "auto",
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> list[str]:
    """Merge models into a folder as mergekit writes it, or into a GGUF file.

    Args:
        config: mergekit's YAML. Where it names a model, that may also be a GGUF file, a folder with
            one, ``hf:org/repo:QUANT``, ``pip:package`` or a packaged model: its weights are decoded
            to float32.
        out: A folder that is not there or is empty; or a file whose name ends in ``.gguf``.
        dtype: Of a GGUF file's matrices, as of :func:`oxibonsai.convert.language_model.convert`.
        seed: Of methods that draw at random.
        progress: Told bytes that are converted, and all of them.

    Returns:
        Warnings of the conversion.

    Raises:
        RequestError: mergekit is not installed or refuses the configuration, or OUT is taken.
        FormatError: The configuration is no YAML.
        SourceError: A model is not there.
    """
    if importlib.util.find_spec("mergekit") is None:
        raise RequestError("merging needs mergekit: install it with pip install 'oxibonsai[merge]'")
    text = _read(config)
    is_file = out.suffix == GGUF_SUFFIX
    if is_file:
        parent = make_room(out).parent
    else:
        if out.exists() and not (out.is_dir() and not any(out.iterdir())):
            raise RequestError(f"{out} is there already: name a new folder, or a file NAME.gguf")
        out = out.resolve()
        make_folder(parent := out.parent)
    with TemporaryDirectory(dir=parent, prefix=".merge-") as scratch:
        made = Path(scratch) / "merged" / out.name.removesuffix(GGUF_SUFFIX)
        _run_mergekit(text, config, made, Path(scratch), seed)
        if not is_file:
            if out.exists():
                out.rmdir()
            made.rename(out)
            return []
        threads = default_threads()
        return convert(made, out, dtype=dtype, name=made.name, threads=threads, progress=progress)


def _read(config: Path) -> str:
    try:
        return config.read_text(encoding="utf-8")
    except UnicodeDecodeError as e:
        raise FormatError(f"{config} is no UTF-8 text (byte {e.start})") from e
    except OSError as e:
        raise RequestError(f"cannot read the configuration {config}: {e.strerror}") from e


def _run_mergekit(text: str, config: Path, out: Path, scratch: Path, seed: int) -> None:
    import yaml
    from mergekit.config import MergeConfiguration
    from mergekit.merge import run_merge
    from mergekit.options import MergeOptions

    try:
        data = yaml.safe_load(text)
    except yaml.YAMLError as e:
        raise FormatError(f"{config} is no YAML: {e}") from e
    if not isinstance(data, dict):
        raise FormatError(
            f"{config} is no configuration of mergekit: it holds no names with values"
        )
    with _named_errors(config):
        models = MergeConfiguration.model_validate(data).referenced_models()
    places: dict[str, Path] = {}
    for name in sorted({m.model.path for m in models}):
        place = _local_folder(name, scratch / "decoded" / str(len(places)))
        if place is not None:
            places[name] = place
    options = MergeOptions(random_seed=seed, quiet=True, lora_merge_cache=str(scratch / "adapters"))
    with _named_errors(config):
        # The configuration that is kept beside the result is the user's own.
        run_merge(
            MergeConfiguration.model_validate(_with_places(data, places)),
            str(out),
            options=options,
            config_source=text,
        )
    card = out / "README.md"
    written = card.read_text(encoding="utf-8")
    for name, place in places.items():
        written = written.replace(f"{place}", name)
    card.write_text(written, encoding="utf-8")


def _local_folder(name: str, place: Path) -> Path | None:
    """Return the folder with a model's safetensors, decoded into ``place`` if there is none.

    None: the name is none of this machine, and mergekit looks for it on the hub.
    """
    path = with_home(name)
    if (path / "config.json").is_file():
        return path.absolute()
    if not (path.exists() or name in PACKAGED or name.startswith(_ELSEWHERE)):
        if path.suffix == GGUF_SUFFIX:
            raise SourceError(f"{name} does not exist")
        return None
    save_model(open_model(name), place)
    return place


def _with_places(value: Any, places: Mapping[str, Path]) -> Any:
    """Return a configuration in which models have other places, with their adapters (``MODEL+ADAPTER``)."""
    if isinstance(value, dict):
        return {key: _with_places(item, places) for key, item in value.items()}
    if isinstance(value, list):
        return [_with_places(item, places) for item in value]
    if isinstance(value, str):
        name, plus, adapter = value.partition("+")
        return f"{places[name]}{plus}{adapter}" if name in places else value
    return value


@contextmanager
def _named_errors(config: Path) -> Iterator[None]:
    """Say of errors with which mergekit refuses a configuration or its models where they are from."""
    try:
        yield
    except (RuntimeError, ValueError, KeyError, NotImplementedError) as e:
        raise RequestError(f"mergekit refuses {config}: {e}") from e

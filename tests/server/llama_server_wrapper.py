"""Stands in for the ``llama-server`` program in that project's own tests: its flags to ours.

The model is that of ``STANDIN_MODEL``, whatever is asked for: the tests that are run here do not
depend on it.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

# Flags without a meaning here, and whether a value follows them.
_DROPPED = {
    "--offline": 0, "--cont-batching": 0, "--kv-unified": 0, "--swa-full": 0, "--reranking": 0,
    "--jinja": 0, "--no-jinja": 0, "--no-mmproj": 0, "--no-cache-idle-slots": 0,
    "--no-models-autoload": 0, "--ui-mcp-proxy": 0, "--backend_sampling": 0, "--context-shift": 0,
    "--hf-repo": 1, "--hf-file": 1, "--model": 1, "--model-url": 1, "--model-draft": 1,
    "--mmproj-url": 1, "--media-path": 1, "--models-dir": 1, "--models-max": 1,
    "--models-preset": 1, "--ubatch-size": 1, "--n-gpu-layers": 1, "-fa": 1, "-ctk": 1, "-ctv": 1,
    "--grp-attn-n": 1, "--grp-attn-w": 1, "--lora": 1, "--spec-type": 1, "--cache-ram": 1,
    "--spec-draft-n-max": 1, "--spec-draft-n-min": 1, "--sleep-idle-seconds": 1,
    "--mcp-servers-config": 1, "--mcp-servers-json": 1, "--tools": 1,
    "--tools-runtime": 1,
}  # fmt: skip
_SWITCHES = {"--embedding", "--metrics", "--slots", "--no-slots", "--verbose", "--no-ui"}
_TEMPLATES = Path(__file__).with_name("llama_server_templates")
_CONTEXT = 2048  # of the stand-in


def translate(arguments: list[str]) -> list[str]:
    """The flags of ``oxibonsai serve`` for those of ``llama-server``."""
    ours: list[str] = []
    context, parallel = _CONTEXT, 1
    unified = "--kv-unified" in arguments
    left = list(arguments)
    values: dict[str, str] = {}
    while left:
        name = left.pop(0)
        if name in _DROPPED:
            del left[: _DROPPED[name]]
        elif name in _SWITCHES:
            ours.append(name)
        else:
            values[name] = left.pop(0)
    context = int(values.pop("--ctx-size", context))
    parallel = int(values.pop("--parallel", parallel))
    # There the context is that of all slots together, and one may be longer than the model's.
    size = min(context if unified else context // parallel, _CONTEXT)
    ours += ["--ctx-size", str(size), "--parallel", str(parallel)]
    if "--alias" in values:  # a sorted set there
        values["--alias"] = ",".join(sorted(values["--alias"].split(",")))
    if values.get("--reasoning") == "auto":  # which is on there, where the template can
        values["--reasoning"] = "on"
    if values.get("--reasoning-format") == "nothink":
        values["--reasoning-format"] = "none"
    template = values.pop("--chat-template", None)
    if template is not None:
        values["--chat-template-file"] = str(_TEMPLATES / f"{template}.jinja")
    if "--chat-template-file" not in values:
        # For a model without a template it takes its own, ChatML with tools.
        values["--chat-template-file"] = str(Path(__file__).with_name("tool_template.jinja"))
    values.setdefault("--cors-origins", "*")
    for name, value in values.items():
        ours += [name, value]
    return ours


def main() -> None:
    from oxibonsai.cli.main import main as oxibonsai

    flags = translate(sys.argv[1:])
    state = os.environ["STANDIN_STATE"]
    sys.argv[1:] = [
        "serve", "--model", os.environ["STANDIN_MODEL"], "--state-dir", state, "--parity", "off",
        "--threads", "1", *flags,
    ]  # fmt: skip
    oxibonsai()


if __name__ == "__main__":
    main()

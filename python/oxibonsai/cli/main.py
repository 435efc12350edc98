"""Entry point of ``oxibonsai``: picks the command, turns errors into one line and an exit code.

Exit codes: 0 done, 1 failed while running, 2 wrong usage, 3 a file that can't be used, 130
interrupted.
"""

from __future__ import annotations

import os
import sys
from difflib import get_close_matches
from importlib import import_module
from typing import TYPE_CHECKING

from oxibonsai import __version__
from oxibonsai.errors import (
    FormatError,
    OxiBonsaiError,
    RequestError,
    SourceError,
    UnsupportedError,
)

if TYPE_CHECKING:
    import rich_click as click

# Each command lives in the module of its name and is imported when it is called.
COMMANDS = {
    "run": "Continue a prompt and stream the text.",
    "chat": "Talk with a model in the terminal.",
    "embed": "Turn texts into vectors.",
    "rerank": "Sort documents by how well they answer a query.",
    "image": "Generate pictures from prompts.",
    "pull": "Fetch a model from the hub or the web.",
    "list": "List the models on this machine.",
    "models": "List the published Bonsai models and which of them fit this machine.",
    "info": "Show what a model file holds.",
    "tokenize": "Turn text into token ids.",
    "detokenize": "Turn token ids into text.",
    "verify": "Check a model file's structure, sizes and scales.",
    "bench": "Measure prompt and generation speed.",
    "perplexity": "Measure how well a model predicts a text, or how far it is from another.",
    "compare": "Compare two models: perplexity, divergence, speed and memory.",
    "eval": "Run benchmarks of lm-evaluation-harness.",
    "imatrix": "Compute which columns of a model's weights matter most.",
    "convert": "Make a GGUF file of a Hugging Face model.",
    "quantize": "Write a model in fewer bits.",
    "prune": "Set weights of a model to zero, or leave layers out.",
    "finetune": "Train a LoRA adapter of a model on examples.",
    "distill": "Train a model's weights to be binary or ternary.",
    "train": "Train a small model whose weights are binary or ternary.",
    "export-web": "Write a folder that runs a model in a browser.",
    "split": "Cut a model file into shards.",
    "merge": "Join the shards of a model.",
    "merge-models": "Merge models by a configuration of mergekit.",
    "serve": "Serve a model over HTTP.",
    "completion": "Print what lets a shell complete commands and options.",
    "cache": "List or clear the packed weights kept on disk.",
    "doctor": "Show this machine's processor, memory, devices and folders, and what is wrong.",
}


def main() -> None:
    """Run the command line and exit."""
    if sys.argv[1:] in (["--version"], ["-V"], ["-v"]):
        print(f"oxibonsai {__version__}")
        return
    from oxibonsai.files.platform import use_utf8

    use_utf8()
    sys.exit(_run(sys.argv[1:]))


def _run(arguments: list[str]) -> int:
    import click

    try:
        _group().main(args=arguments, prog_name="oxibonsai", standalone_mode=False)
    except click.exceptions.Exit as e:
        return int(e.exit_code)
    except click.BadParameter as e:
        from oxibonsai.cli.help import wrong_value

        return _fail(wrong_value(e), 2)
    except click.ClickException as e:
        return _fail(e.format_message() + _hint(e, arguments), 2)
    except (click.Abort, KeyboardInterrupt):
        print(file=sys.stderr)
        return 130
    except RequestError as e:
        return _fail(str(e), 2)
    except (FormatError, UnsupportedError, SourceError) as e:
        return _fail(str(e), 3)
    except OxiBonsaiError as e:
        return _fail(str(e), 1)
    except BrokenPipeError:
        # The reader of our output went away; keep the interpreter from failing on its last flush.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as e:
        reason = e.strerror or str(e)
        return _fail(reason if e.filename is None else f"{e.filename}: {reason}", 1)
    except MemoryError as e:
        return _fail(str(e) or "out of memory", 1)
    return 0


# Ollama's names of commands.
_ALIASES = {"ls": "list", "show": "info", "start": "serve"}
# What other tools call a command.
_ELSEWHERE = {
    **_ALIASES,
    "generate": "run",
    "complete": "run",
    "cli": "run",
    "server": "serve",
    "download": "pull",
    "fetch": "pull",
    "embedding": "embed",
    "benchmark": "bench",
    "ppl": "perplexity",
    "draw": "image",
    "txt2img": "image",
}
# Commands of Ollama that there is something else for.
_INSTEAD = {
    "rm": "delete the file; oxibonsai list says where it is, hf cache delete removes those of the hub",
    "cp": "a model is a file: copy it",
    "create": "FROM is the model, PARAMETER an option or a line of --config, SYSTEM is --system, "
    "TEMPLATE is --chat-template-file, ADAPTER is --lora",
    "push": "hf upload puts files on the hub",
    "ps": "GET /v1/models of the server says which models are loaded",
    "stop": "POST /models/unload of the server unloads a model",
    "signin": "models come from the hub, which knows you by HF_TOKEN",
    "signout": "models come from the hub, which knows you by HF_TOKEN",
    "launch": "give a program the server's address: docs/clients.md",
}


def _unknown(name: str) -> str:
    """Return the message for a command that does not exist."""
    if name in _INSTEAD:
        return f"there is no command {name!r}: {_INSTEAD[name]}"
    likely = get_close_matches(name, [*COMMANDS, *_ELSEWHERE], n=1)
    if likely:
        meant = _ELSEWHERE.get(likely[0], likely[0])
        return f"there is no command {name!r}; did you mean {meant!r}?"
    return f"there is no command {name!r}; oxibonsai --help lists them"


# Commands whose argument is a text, so that a model needs its option.
_OF_TEXT = ("run", "embed", "tokenize")


def _hint(error: Exception, arguments: list[str]) -> str:
    """Return a hint for a user who gave a model and a text without options."""
    if "unexpected extra argument" in str(error) and arguments[0] in _OF_TEXT:
        hint = f": {arguments[0]} takes a text; name the model with -m, and put the text in quotes"
        given = any(a.partition("=")[0] == "--image" for a in arguments)
        return f"{hint}; each picture takes an --image of its own" if given else hint
    return ""


def _fail(message: str, code: int) -> int:
    print("oxibonsai: " + " ".join(message.split()), file=sys.stderr)
    return code


def find_command(name: str) -> click.Command | None:
    """Import a command by its name, or Ollama's name for it; None: there is none."""
    from oxibonsai.cli.help import arrange

    name = _ALIASES.get(name, name)
    if name not in COMMANDS:
        return None
    module = "tokenize" if name == "detokenize" else name.replace("-", "_")
    function = "list_models" if name == "list" else name.replace("-", "_")
    command: click.Command = getattr(import_module(f"oxibonsai.cli.{module}"), function)
    command.short_help = COMMANDS[name]
    arrange(name, command)
    return command


def _group() -> click.Group:
    import rich_click as click

    class LazyGroup(click.RichGroup):
        def list_commands(self, ctx: click.Context) -> list[str]:
            return list(COMMANDS)

        def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
            return find_command(name)

        def resolve_command(
            self, ctx: click.Context, args: list[str]
        ) -> tuple[str | None, click.Command | None, list[str]]:
            if args and find_command(args[0]) is None and not args[0].startswith("-"):
                raise click.UsageError(_unknown(args[0]))
            return super().resolve_command(ctx, args)

    return LazyGroup(
        name="oxibonsai",
        help="Run 1-bit, ternary and other GGUF language models on this machine.",
        params=[
            click.Option(
                ["--version", "-V"], is_flag=True, expose_value=False, help="Show the version."
            )
        ],
        context_settings={"help_option_names": ["-h", "--help"]},
        no_args_is_help=True,
    )

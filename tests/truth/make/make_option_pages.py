"""Writes what docs/from_llama_cpp.md, from_ollama.md and from_mflux.md say of single options.

    python tests/truth/make make_option_pages

The names come from truth/option_names.json, what becomes of them from the commands themselves.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import click

from oxibonsai.cli.foreign_options import ForeignOption
from oxibonsai.cli.foreign_table import Verdict
from oxibonsai.cli.main import find_command
from oxibonsai.cli.ollama_variables import VARIABLES

RECORDED = json.loads((Path(__file__).parents[1] / "option_names.json").read_text("utf-8"))
DOCS = Path(__file__).resolve().parents[3] / "docs"
PAGES = {"llama.cpp": "from_llama_cpp.md", "ollama": "from_ollama.md", "mflux": "from_mflux.md"}
# Other programs, with the commands that do their work.
COMMANDS = {
    "llama-cli": ("run", "chat"),
    "llama-completion": ("run",),
    "llama-mtmd-cli": ("run",),
    "llama-server": ("serve",),
    "llama-bench": ("bench",),
    "llama-perplexity": ("perplexity",),
    "llama-imatrix": ("imatrix",),
    "llama-embedding": ("embed",),
    "llama-tokenize": ("tokenize",),
    "llama-quantize": ("quantize",),
    "llama-gguf-split": ("split",),
    "ollama run": ("run", "chat"),
    "ollama show": ("info",),
    "ollama pull": ("pull",),
    "mflux-generate": ("image",),
    "mflux-generate-flux2": ("image",),
    "mflux-generate-flux2-edit": ("image",),
}
_HELP = {"-h", "--help", "--usage"}
_BEGIN = "<!-- Written by tests/truth/make/make_option_pages.py -->\n"
_END = "<!-- End of the options -->\n"


class Use(NamedTuple):
    """An option of another program on a command of this one.

    Attributes:
        command: Of this program.
        name: Of the option, one of its spellings.
        values: How many follow it there.
        option: What takes it here; None where nothing does.
    """

    command: str
    name: str
    values: int
    option: click.Parameter | None


@cache
def options_of(command: str) -> dict[str, click.Parameter]:
    """Return what takes each name that a command knows."""
    known = find_command(command)
    assert known is not None
    return {o: p for p in known.params for o in (*p.opts, *p.secondary_opts)}


def uses(table: str) -> Iterator[Use]:
    """Yield every spelling of every recorded option on every command that it belongs to."""
    for row in RECORDED[table]:
        commands = {c for program in row["programs"] for c in COMMANDS.get(program, ())}
        for command in sorted(commands):
            for name in (*row["names"], *row.get("negative", ())):
                if name not in _HELP:
                    option = options_of(command).get(name)
                    yield Use(command, name, row.get("values", 0), option)


def _own_name(option: click.Parameter, name: str) -> str:
    """Return the name that this program's help shows, if it is another."""
    if option.secondary_opts and name in option.secondary_opts:
        return option.secondary_opts[0]
    return next((o for o in option.opts if o.startswith("--")), option.opts[0])


def _tables(table: str) -> str:
    """Return three tables: what is taken, what has no effect, what is refused."""
    taken: dict[tuple[str, str], dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    said: dict[Verdict, dict[str, dict[str, set[str]]]] = {
        v: defaultdict(lambda: defaultdict(set)) for v in Verdict
    }
    for use in uses(table):
        assert use.option is not None, f"{use.command} does not know {use.name}"
        if isinstance(use.option, ForeignOption):
            row = use.option.row
            said[row.verdict][row.text][use.name].add(use.command)
        else:
            taken[_own_name(use.option, use.name), ""][use.name].add(use.command)
    parts = ["### Taken\n", "| there | here | commands |", "| --- | --- | --- |"]
    for (own, _), names in sorted(taken.items()):
        parts += [f"| {told} | `{own}` | {on} |" for told, on in _grouped(names)]
    for text, names in said[Verdict.SAME].items():
        parts += [f"| {told} | {text} | {on} |" for told, on in _grouped(names)]
    for verdict, title, head in (
        (Verdict.NO_EFFECT, "Without effect", "why"),
        (Verdict.REFUSED, "Refused", "what to do"),
    ):
        if not said[verdict]:
            continue
        parts += [f"\n### {title}\n", f"| there | {head} | commands |", "| --- | --- | --- |"]
        for text, names in said[verdict].items():
            parts += [f"| {told} | {text} | {on} |" for told, on in _grouped(names)]
    return "\n".join(parts) + "\n"


def _grouped(names: dict[str, set[str]]) -> Iterator[tuple[str, str]]:
    """Yield the names that the same commands have, with those commands."""
    groups: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for name, commands in names.items():
        groups[tuple(sorted(commands))].append(name)
    for on, told in groups.items():
        yield ", ".join(f"`{name}`" for name in told), ", ".join(on)


def _variables() -> str:
    """Return the table of Ollama's environment variables."""
    lines = ["\n### Environment variables\n", "| there | here |", "| --- | --- |"]
    for name in RECORDED["ollama_variables"]:
        lines.append(f"| `{name}` | {VARIABLES[name].text} |")
    return "\n".join(lines) + "\n"


def page(table: str) -> str:
    """Return a page with its tables as they are now."""
    text = (DOCS / PAGES[table]).read_text(encoding="utf-8")
    before, rest = text.split(_BEGIN)
    _, after = rest.split(_END)
    tables = _tables(table) + (_variables() if table == "ollama" else "")
    return f"{before}{_BEGIN}{tables}{_END}{after}"


if __name__ == "__main__":
    for name, file in PAGES.items():
        (DOCS / file).write_text(page(name), encoding="utf-8")
